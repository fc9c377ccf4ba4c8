"""A real ComfyUI in a subprocess, spoken to as a browser does: HTTP to queue, a websocket to follow."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import websocket
from safetensors.torch import load_file

PACK = Path(__file__).resolve().parents[2]
HOW_TO_ENABLE = "no ComfyUI here: set COMFYUI_PATH to a checkout of ComfyUI 0.33.0 or newer that starts"

Graph = dict[str, dict]
Event = dict


def comfy_path() -> Path | None:
    """Where ComfyUI is: COMFYUI_PATH, else comfy-cli's default."""
    path = Path(os.environ.get("COMFYUI_PATH", Path.home() / "comfy" / "ComfyUI"))
    return path if (path / "main.py").is_file() else None


def comfy_python(path: Path) -> str:
    """The interpreter of its environment."""
    candidates = [path / ".venv/bin/python", path / "venv/bin/python", path / ".venv/Scripts/python.exe"]
    return str(next((python for python in candidates if python.is_file()), "python"))


def report_of(script: str, path: Path, base: Path, *arguments: str) -> dict:
    """What a script of `inside` prints that runs in ComfyUI's own interpreter."""
    done = subprocess.run(
        [comfy_python(path), str(PACK / "tests/host/inside" / script), str(base), str(PACK), *arguments],
        cwd=path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("REPORT "))


def partial_loading(path: Path, base: Path, checkpoint: str, last: str = "audio", dtype: str = "auto") -> dict:
    """What loading a checkpoint in part reports; its layers were where they belong."""
    report = report_of("partial_loading.py", path, base, checkpoint, last, dtype)
    assert report["loaded"] and report["whole_offloaded"] == 0
    assert 0 < report["partial_offloaded"] < report["novram_offloaded"]
    return report


class PromptError(Exception):
    """A prompt that ComfyUI refused, or that failed while it ran."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Run:
    """What a finished prompt left: outputs by node, and the events seen on the way."""

    outputs: dict[str, dict]
    events: list[Event] = field(default_factory=list)

    def executed(self) -> set[str]:
        """Nodes that ran, rather than came from the cache."""
        return {e["data"]["node"] for e in self.events if e["type"] == "executing" and e["data"]["node"]}

    def texts(self, name: str) -> list[str]:
        """What a node showed, in order."""
        return [e["data"]["text"] for e in self.events if e["type"] == "text" and e["data"]["node"] == name]


class Comfy:
    """A running server over a base directory of its own, with this pack installed."""

    def __init__(self, path: Path, base: Path, *arguments: str, pack: Path = PACK, threads: int = 1) -> None:
        self.base = base
        for folder in ("models/diffusers", "models/diffusion_models", "models/vae", "custom_nodes", "input", "output"):
            (base / folder).mkdir(parents=True, exist_ok=True)
        installed = base / "custom_nodes" / "mm3"
        if not installed.exists():
            installed.symlink_to(pack, target_is_directory=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = base / "server.log"
        command = [comfy_python(path), "main.py", "--cpu", "--disable-auto-launch", f"--base-directory={base}"]
        command += [f"--port={self.address.rsplit(':', 1)[1]}", f"--database-url=sqlite:///{base}/comfy.db", *arguments]
        with self.log.open("w") as log:
            env = {**os.environ, "OMP_NUM_THREADS": str(threads)}  # tiny tensors: threads only stall each other
            self.process = subprocess.Popen(command, cwd=path, env=env, stdout=log, stderr=subprocess.STDOUT)
        self._wait()

    def _wait(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                self.get("/system_stats")
                return
            except OSError:
                time.sleep(0.3)
        self.stop()
        raise RuntimeError(f"ComfyUI did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:  # noqa: S310
            return answer.read()

    def post(self, path: str, body: dict) -> bytes:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data)  # noqa: S310
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.read()

    def object_info(self, node_id: str) -> dict:
        return json.loads(self.get(f"/object_info/{node_id}"))[node_id]

    def run(self, graph: Graph, on_event=None) -> Run:
        """Queue a prompt and follow it to its end.

        Raises:
            PromptError: With the message that a user would read.
        """
        client = uuid.uuid4().hex
        follower = websocket.create_connection(f"ws://{self.address}/ws?clientId={client}", timeout=120)
        try:
            prompt = self._queue(graph, client)
            events = []
            for event in _events(follower):
                events.append(event)
                if on_event is not None:
                    on_event(event)
                data = event["data"]
                if data.get("prompt_id") != prompt:
                    continue
                if event["type"] in ("execution_error", "execution_interrupted"):
                    raise PromptError(data.get("exception_message", "interrupted"), event["type"])
                if event["type"] == "executing" and data["node"] is None:
                    break
        finally:
            follower.close()
        history = json.loads(self.get(f"/history/{prompt}"))[prompt]
        return Run(history["outputs"], events)

    def latent_of(self, run: Run, name: str = "latent") -> torch.Tensor:
        """What a SaveLatent node wrote."""
        (file,) = run.outputs[name]["latents"]
        return load_file(self.base / "output" / file["subfolder"] / file["filename"])["latent_tensor"]

    def _queue(self, graph: Graph, client: str) -> str:
        try:
            return json.loads(self.post("/prompt", {"prompt": graph, "client_id": client}))["prompt_id"]
        except urllib.error.HTTPError as error:
            answer = json.loads(error.read())
            details = [e["details"] for node in answer["node_errors"].values() for e in node["errors"]]
            raise PromptError("; ".join([answer["error"]["message"], *details]), "refused") from error


def _events(follower: websocket.WebSocket) -> Iterator[Event]:
    """JSON events; a binary progress text becomes an event of type `text`."""
    while True:
        message = follower.recv()
        if isinstance(message, str):
            yield json.loads(message)
        elif int.from_bytes(message[:4], "big") == 3:
            length = int.from_bytes(message[4:8], "big")
            node, text = message[8 : 8 + length].decode(), message[8 + length :].decode()
            yield {"type": "text", "data": {"node": node, "text": text}}
