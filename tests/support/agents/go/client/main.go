// Sends requests as told: reads a JSON array of {method, url, headers, body} (body in base64) and
// prints an array of {status, headers, body}.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

type told struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

type reply struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

func send(t told) (reply, error) {
	request, err := http.NewRequest(t.Method, t.URL, bytes.NewReader(t.Body))
	if err != nil {
		return reply{}, err
	}
	for name, value := range t.Headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	headers := map[string]string{}
	for name := range response.Header {
		headers[strings.ToLower(name)] = response.Header.Get(name)
	}
	return reply{response.StatusCode, headers, body}, err
}

func main() {
	var requests []told
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		log.Fatal(err)
	}
	replies := make([]reply, 0, len(requests))
	for _, one := range requests {
		received, err := send(one)
		if err != nil {
			log.Fatal(err)
		}
		replies = append(replies, received)
	}
	if err := json.NewEncoder(os.Stdout).Encode(replies); err != nil {
		log.Fatal(err)
	}
}
