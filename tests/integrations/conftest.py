from servers.fixtures import ollama_server, openai_server

__all__ = ["ollama_server", "openai_server"]
