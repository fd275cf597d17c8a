#!/bin/sh
# An agent of curl and sed: asks the model for one word per turn, and takes it as the action.
auth="Authorization: Bearer $PALAESTRA_TOKEN"
json="Content-Type: application/json"
text() { # the JSON string in field $1
    sed -E "s/.*\"$1\": ?\"(([^\"\\\\]|\\\\.)*)\".*/\1/"
}
seen=$(curl -sf -H "$auth" "$PALAESTRA_WORLD_URL" | text observation)
talk="{\"role\": \"user\", \"content\": \"$seen\"}"
while true; do
    reply=$(curl -sf -H "$auth" -H "$json" "$OPENAI_BASE_URL/chat/completions" \
        -d "{\"model\": \"$PALAESTRA_MODEL\", \"messages\": [$talk]}") || exit 1
    word=$(echo "$reply" | text content)
    step=$(curl -sf -H "$auth" -H "$json" "$PALAESTRA_WORLD_URL/step" \
        -d "{\"action\": \"$word\"}") || exit 1
    case "$step" in *'"over":true'*) exit 0 ;; esac
    talk="$talk, {\"role\": \"assistant\", \"content\": \"$word\"}"
    talk="$talk, {\"role\": \"user\", \"content\": \"$(echo "$step" | text observation)\"}"
done
