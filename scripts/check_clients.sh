#!/bin/sh
# Lets foreign clients live episodes through the gateway: `scripts/check_clients.sh [NAME …]`.
#
# Each client has a virtual environment of its own in .peers/clients, made where it does not fit
# yet, for they want different versions of one another; those of Node share one folder. The scripts
# that drive them are in tests/gateway/clients. Only the clients named are installed and run; without
# a name all are tried, and one that cannot be installed is named and left out.
#
# PIP_ARGS  further options for `pip install`
set -eu
cd "$(dirname "$0")/.."
place=.peers/clients
mkdir -p $place
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

ALL="agno anthropic autogen camel dspy google_adk instructor langchain langgraph litellm llama_index\
 mcp node openai_agents pydantic_ai semantic_kernel smolagents strands"

packages() {
    case $1 in
        agno) echo "agno==3.1.10 openai==3.51.0" ;;
        anthropic) echo "anthropic==2.10.0" ;;
        autogen) echo "autogen-agentchat==0.7.5 autogen-ext[openai]==0.7.5" ;;
        camel) echo "camel-ai==0.2.90 mcp==1.30.0" ;;
        dspy) echo "dspy==3.4.1" ;;
        google_adk) echo "google-adk==2.13.0 litellm==1.106.2 mcp==2.3.0" ;;
        instructor) echo "instructor==1.17.0" ;;
        langchain) echo "langchain-openai==1.7.3" ;;
        langgraph)
            echo "langgraph==1.2.24 langgraph-supervisor==0.0.31 langchain-openai==1.7.4"
            ;;
        litellm) echo "litellm==1.106.2 mcp==2.3.0" ;;
        llama_index) echo "llama-index-llms-openai-like==0.8.1" ;;
        mcp) echo "mcp==2.3.0" ;;
        node)
            echo "openai@7.55.0 @anthropic-ai/sdk@1.10.0 ai@7.0.173 @ai-sdk/openai@4.0.118" \
                "@ai-sdk/anthropic@4.0.105 @openai/agents@0.20.0 @langchain/openai@1.6.0 zod@4" \
                "@openai/codex@0.169.0"
            ;;
        openai_agents) echo "openai-agents==0.24.0" ;;
        pydantic_ai) echo "pydantic-ai-slim[openai]==2.68.0" ;;
        semantic_kernel) echo "semantic-kernel==1.45.0" ;;
        smolagents) echo "smolagents[openai]==1.26.0" ;;
        strands) echo "strands-agents[openai]==1.62.0" ;;
        *)
            echo "palaestra: there is no client '$1'; name some of: $ALL." >&2
            exit 2
            ;;
    esac
}

install() {
    # Both are lists of words: they must be split at their spaces.
    # shellcheck disable=SC2086
    if [ "$1" = node ]; then
        mkdir -p "$2"
        echo '{"private": true, "type": "module"}' >"$2/package.json"
        npm install --prefix "$2" --no-audit --no-fund --silent $3
    else
        .venv/bin/python -m venv "$2"
        "$2/bin/python" -m pip install --no-input --quiet ${PIP_ARGS:-} $3
    fi
}

for client in ${*:-$ALL}; do
    packages "$client" >/dev/null
done
scripts/setup.sh dev
for client in ${*:-$ALL}; do
    wanted=$(packages "$client")
    own=$place/$client
    if [ ! -f "$own/.ready" ] || [ "$(cat "$own/.ready")" != "$wanted" ]; then
        echo "Making $own with $wanted."
        rm -rf "$own"
        if install "$client" "$own" "$wanted"; then
            echo "$wanted" >"$own/.ready"
        else
            echo "palaestra: $client cannot be installed here and is left out." >&2
            rm -rf "$own"
        fi
    fi
done
chosen=
for client; do
    chosen="$chosen${chosen:+ or }[$client-"
done
.venv/bin/python -m pytest -n 0 -m slow -k "$chosen" tests/gateway/test_clients.py
