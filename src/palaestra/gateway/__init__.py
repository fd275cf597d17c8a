"""The gateway: any program, in any language, as an agent; see docs/gateway.md."""
