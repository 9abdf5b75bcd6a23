#!/bin/sh
# An agent in shell, curl and jq. Called once a turn: the body on standard input, the headers in
# HTTP_* variables as with CGI. Prints the status on one line and then the answer's body.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# call NAME ARGUMENTS: one tool call. Prints the unwrapped response, or the error, as JSON.
# The token goes to curl on standard input, so that no list of processes shows it. curl's own
# retries wait for 408, 429 and 503, and as long as Retry-After says.
call() {
    printf '%s' "$2" >"$work/arguments"
    status=$(printf 'header = "Authorization: Bearer %s"\n' "$HTTP_X_PIPELINES_RUN_TOKEN" |
        curl --config - --silent --show-error --max-time 120 --retry 3 \
            --header 'Content-Type: application/json' --data-binary "@$work/arguments" \
            --output "$work/reply" --write-out '%{http_code}' "${proxy_url%/}/tools/$1")
    if [ "$status" = 200 ]; then
        jq --compact-output .response "$work/reply"
    else
        jq --compact-output . "$work/reply"
    fi
}

answer() {
    printf '%s\n' "$1"
    exit 0
}

body=$(cat)
if [ "${HTTP_AUTHORIZATION-}" != "Bearer $AGENT_TOKEN" ]; then
    answer '401
{"error": "missing or invalid bearer token"}'
fi
if printf '%s' "$body" | jq --exit-status '. == {ping: true}' >/dev/null; then
    answer '200
{"ok": true}'
fi
proxy_url=$(printf '%s' "$body" | jq --raw-output '.odyssey_proxy_url // empty')
proxy_url=${proxy_url:-${HTTP_X_PIPELINES_ODYSSEY_PROXY_URL-}}
if [ -z "$proxy_url" ] || [ -z "${HTTP_X_PIPELINES_RUN_TOKEN-}" ]; then
    answer '400
{"error": "no proxy URL or no run token"}'
fi
order_id=$(printf '%s' "$body" | jq --raw-output '
    .input.input.order_id // (.input.user_instruction | [match("(?:[A-Z]+-)?[0-9]{3,}").string][0])
    // empty')
if [ -z "$order_id" ]; then
    answer '200
{"final_response": "Which order is it?"}'
fi
call get_order "$(jq --null-input --arg id "$order_id" '{order_id: $id}')" >"$work/found"
printf '200\n'
jq --arg id "$order_id" \
    '{final_response: "Order \($id): \(if type == "string" then . else tojson end)"}' "$work/found"
