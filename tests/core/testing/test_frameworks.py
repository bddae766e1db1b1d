"""Programs on real frameworks, recorded and replayed."""

import importlib.util
import sys

import pytest
from servers import OllamaServer, OpenAIServer, Reply

from steproute.testing import record_program, replay_program, routed_cassette

AG2 = """
import asyncio, os
from ag2 import Agent
from ag2.config import OpenAIConfig
from steproute import Budget, Model, Router
from steproute.plugins.ag2 import attach
def agent(name):
    config = OpenAIConfig(model="any", base_url=os.environ["BASE"], api_key="sk-live-0123456789abcdef", max_retries=0)
    return Agent(name, prompt=f"You are the {name}.", config=config)
async def main():
    router = Router([Model("small", price="free"), Model("large", price="free")], Budget(seconds=60), policy="fixed:large")
    coder, judge = agent("coder"), agent("judge")
    attach(router, coder, judge, pin={"coder": "small"})
    draft = await coder.ask("hello")
    print(draft.body, (await judge.ask(draft.body)).body)
asyncio.run(main())
"""

LITELLM = """
import asyncio, os, litellm
params = {"model": "openai/small", "api_base": os.environ["BASE"], "api_key": "sk-live-0123456789abcdef"}
router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": params}])
question = [{"role": "user", "content": "hello"}]
print(router.completion("m", question).choices[0].message.content)
async def main():
    stream = await router.acompletion("m", question, stream=True)
    print("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
    base = os.environ["OLLAMA"]
    print((await litellm.acompletion("ollama_chat/large", question, api_base=base)).choices[0].message.content)
asyncio.run(main())
"""

LANGGRAPH = """
import os
from typing import Annotated, TypedDict
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
class State(TypedDict):
    messages: Annotated[list, add_messages]
def node(model):
    llm = ChatOpenAI(model=model, base_url=os.environ["BASE"], api_key="sk-live-0123456789abcdef", max_retries=0)
    return lambda state: {"messages": [llm.invoke(state["messages"])]}
graph = StateGraph(State)
graph.add_node("coder", node("small"))
graph.add_node("judge", node("large"))
graph.add_edge(START, "coder")
graph.add_edge("coder", "judge")
graph.add_edge("judge", END)
app = graph.compile()
print([message.content for message in app.invoke({"messages": [("user", "hello")]})["messages"]])
print([part.content for part, _ in app.stream({"messages": [("user", "again")]}, stream_mode="messages")])
"""


@pytest.mark.parametrize(
    ("program", "needs", "exchanges"),
    [(AG2, "ag2", 2), (LANGGRAPH, "langchain_openai", 4)],
    ids=["ag2", "langgraph"],
)
def test_a_program_replays_to_the_same_output(program, needs, exchanges, tmp_path, monkeypatch, capfd):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    script, file = tmp_path / "prog.py", tmp_path / "a.yaml"
    script.write_text(program)
    with OpenAIServer(lambda body: Reply(f"I am {body['model']}")) as server:
        monkeypatch.setenv("BASE", server.base_url)
        result = record_program([sys.executable, str(script)], file)
    recorded = capfd.readouterr()
    assert (result.exit_code, result.exchanges) == (0, exchanges), recorded.err
    assert "sk-live" not in file.read_text()

    monkeypatch.setenv("BASE", "http://model.invalid:9/v1")
    result = replay_program([sys.executable, str(script)], [file])
    replayed = capfd.readouterr()
    assert (result.exit_code, result.report) == (0, ""), replayed.err
    assert replayed.out == recorded.out
    assert replayed.out.strip()


def test_litellms_router_replays_in_this_process(tmp_path, monkeypatch, capsys):
    pytest.importorskip("litellm")  # importing it takes so long that another interpreter for it is too much
    file = tmp_path / "a.yaml"
    program = compile(LITELLM, "prog.py", "exec")
    with OpenAIServer(lambda body: Reply(f"I am {body['model']}")) as server, OllamaServer() as ollama:
        monkeypatch.setenv("BASE", server.base_url)
        monkeypatch.setenv("OLLAMA", ollama.url)
        with routed_cassette(file, "record") as cassette:
            exec(program, {})
    recorded = capsys.readouterr().out
    assert (cassette.recorded, recorded) == (3, "I am small\nI am small\nok\n")
    assert "sk-live" not in file.read_text()
    monkeypatch.setenv("BASE", "http://model.invalid:9/v1")
    monkeypatch.setenv("OLLAMA", "http://ollama.invalid:9")
    with routed_cassette(file):
        exec(program, {})
    assert capsys.readouterr().out == recorded
