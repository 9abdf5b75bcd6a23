// An agent on Go's standard library alone: OpenAI's nested messages, metadata, and an actor.
package main

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const attempts = 4

var (
	client   = &http.Client{Timeout: 120 * time.Second}
	orderRef = regexp.MustCompile(`(?:[A-Z]+-)?\d{3,}`)
)

type object = map[string]any

// proxy is one turn's tool proxy; nothing of it outlives the request.
type proxy struct{ url, token string }

// call makes one tool call: the unwrapped response, or what went wrong as a result for the model.
func (p proxy) call(name string, arguments object) (any, error) {
	body, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		url := strings.TrimRight(p.url, "/") + "/tools/" + name
		request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Pipelines-Run-Token", p.token)
		request.Header.Set("X-Pipelines-Actor-Id", "supervisor/orders")
		reply, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil {
			return nil, err
		}
		if reply.StatusCode == http.StatusOK {
			var envelope struct{ Response any }
			return envelope.Response, json.Unmarshal(data, &envelope)
		}
		switch reply.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable:
			if attempt < attempts {
				time.Sleep(pause(attempt, reply.Header.Get("Retry-After")))
				continue
			}
		}
		return object{"error": string(data)}, nil
	}
}

func pause(attempt int, retryAfter string) time.Duration {
	backoff := min(4*time.Second, 500*time.Millisecond<<(attempt-1))
	backoff += time.Duration(rand.Int63n(int64(backoff / 4)))
	seconds, _ := strconv.Atoi(retryAfter)
	return max(backoff, time.Duration(seconds)*time.Second)
}

type turn struct {
	URL   string `json:"odyssey_proxy_url"`
	Input struct {
		Instruction string `json:"user_instruction"`
		Input       struct {
			OrderID string `json:"order_id"`
		} `json:"input"`
	} `json:"input"`
}

func answer(p proxy, t turn) (object, error) {
	started := time.Now()
	order := t.Input.Input.OrderID
	if order == "" {
		order = orderRef.FindString(t.Input.Instruction)
	}
	final := "Which order is it?"
	messages := []object{{"role": "user", "content": t.Input.Instruction}}
	if order != "" {
		arguments := object{"order_id": order}
		found, err := p.call("get_order", arguments)
		if err != nil {
			return nil, err
		}
		told, isText := found.(string)
		if !isText {
			data, _ := json.Marshal(found)
			told = string(data)
		}
		encoded, _ := json.Marshal(arguments)
		function := object{"name": "get_order", "arguments": string(encoded)}
		called := object{"id": "call-1", "type": "function", "function": function}
		messages = append(messages,
			object{"role": "assistant", "content": nil, "tool_calls": []object{called}},
			object{"role": "tool", "tool_call_id": "call-1", "content": told})
		final = "Order " + order + ": " + told
	}
	messages = append(messages, object{"role": "assistant", "content": final})
	elapsed := float64(time.Since(started).Microseconds()) / 1000
	metadata := object{"model": "lookup", "total_input_tokens": 0, "total_output_tokens": 0,
		"agent_runtime_ms": elapsed}
	return object{"final_response": final, "messages": messages, "metadata": metadata}, nil
}

func dispatch(w http.ResponseWriter, r *http.Request) {
	expected := "Bearer " + os.Getenv("AGENT_TOKEN")
	given := r.Header.Get("Authorization")
	if subtle.ConstantTimeCompare([]byte(given), []byte(expected)) != 1 {
		reply(w, http.StatusUnauthorized, object{"error": "missing or invalid bearer token"})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // nobody is listening any more
	}
	var fields object
	if err := json.Unmarshal(body, &fields); err != nil {
		reply(w, http.StatusBadRequest, object{"error": err.Error()})
		return
	}
	if len(fields) == 1 && fields["ping"] == true {
		reply(w, http.StatusOK, object{"ok": true})
		return
	}
	var t turn
	if err := json.Unmarshal(body, &t); err != nil {
		reply(w, http.StatusBadRequest, object{"error": err.Error()})
		return
	}
	p := proxy{url: t.URL, token: r.Header.Get("X-Pipelines-Run-Token")}
	if p.url == "" {
		p.url = r.Header.Get("X-Pipelines-Odyssey-Proxy-Url")
	}
	if p.url == "" || p.token == "" {
		reply(w, http.StatusBadRequest, object{"error": "no proxy URL or no run token"})
		return
	}
	value, err := answer(p, t)
	if err != nil {
		reply(w, http.StatusInternalServerError, object{"error": err.Error()})
		return
	}
	reply(w, http.StatusOK, value)
}

func reply(w http.ResponseWriter, status int, value object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		log.Print(err)
	}
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "0"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/dispatch", dispatch)
	fmt.Printf("http://%s/dispatch\n", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
