"""The MCP server, driven by the SDK's own client, the inspector, the conformance suite and the real agent client."""
