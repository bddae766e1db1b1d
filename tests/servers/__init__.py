"""Model servers on loopback that speak real protocols: a fake Ollama and a fake OpenAI-compatible server."""

from servers.base import Hang, Received, Reply
from servers.ollama_server import OllamaServer
from servers.openai_server import OpenAIServer

__all__ = ["Hang", "OllamaServer", "OpenAIServer", "Received", "Reply"]
