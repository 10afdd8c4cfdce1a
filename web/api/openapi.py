"""The OpenAPI 3.1 document of the operations, made from their types; and a client of a page, made from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

import probing_cluster
from probing_cluster.web import problems
from probing_cluster.web.api import operation

BASE = "/api/v1"
_ERRORS = {
    "400": "the request cannot be understood",
    "401": "nobody is logged in",
    "403": "the viewer may not see or do this",
    "404": "there is no such thing",
    "409": "not done, or the same request is being done now",
    "413": "the request is too long",
    "422": "the idempotency key was used for another request",
    "429": "too many requests",
    "503": "the database or Slurm does not answer",
}


def document(operations: Iterable[operation.Operation]) -> dict[str, Any]:
    """The whole document."""
    known = list(operations)
    kinds = [problems.Problem, *(op.answer for op in known if op.answer not in (bytes, None))]
    kinds += [op.body for op in known if op.body is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for op in known:
        paths.setdefault(op.path, {})[op.method.lower()] = _operation(op, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Probing Cluster",
            "version": getattr(probing_cluster, "__version__", "1"),
            "description": "What is bad now, and why. Users see their own jobs, operators everything.",
        },
        "servers": [{"url": BASE}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(op: operation.Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": op.name,
        "summary": op.meaning,
        "parameters": [*_path_parameters(op.path), *_query_parameters(op.query)],
        "responses": {"200": _answer(op, schemas)} | {
            code: {"description": words, "content": {problems.MEDIA_TYPE: {"schema": schemas[str(problems.Problem)]}}}
            for code, words in _ERRORS.items()
        },
    }  # fmt: skip
    if op.body is None:
        made["responses"]["304"] = {"description": "what was given with this ETag still stands"}
    else:
        content = {"application/json": {"schema": schemas[str(op.body)]}}
        made["requestBody"] = {"required": True, "content": content}
    if op.acts:
        key = {"type": "string", "minLength": 8, "maxLength": 128, "pattern": "^[A-Za-z0-9_-]+$"}
        made["parameters"].append(
            {"name": "Idempotency-Key", "in": "header", "required": True, "schema": key}
        )
    return made


def _answer(op: operation.Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if op.answer is bytes:
        return {"description": op.meaning, "content": {"application/octet-stream": {}}}
    return {"description": op.meaning, "content": {"application/json": {"schema": schemas[str(op.answer)]}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    shapes = {
        "job": {"type": "string", "pattern": r"^[0-9]{1,10}([_+][0-9]{1,6})?$"},
        "figure": {"type": "string", "pattern": "^[a-z-]{1,40}$"},
        "round": {"type": "string", "format": "uuid"},
    }
    node = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9._-]+$"}
    return [
        {"name": name, "in": "path", "required": True, "schema": shapes.get(name, node)}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    (schema,), components = msgspec.json.schema_components([query])
    name = schema["$ref"].rpartition("/")[2]
    found: dict[str, Any] = components[name]
    required = set(found.get("required", ()))
    return [
        {"name": key, "in": "query", "required": key in required, "schema": _plain(shape)}
        for key, shape in found.get("properties", {}).items()
    ]


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is there or not; there is no null in an address."""
    kinds = [kind for kind in shape.get("anyOf", ()) if kind.get("type") != "null"]
    found = kinds[0] if len(kinds) == 1 else shape
    return {key: value for key, value in found.items() if not (key == "default" and value is None)}


def client(operations: Iterable[operation.Operation]) -> str:
    """A Python client, standard library only: one method an operation."""
    return _HEAD + "".join(_method(op) for op in operations)


def _method(op: operation.Operation) -> str:
    names = re.findall(r"{(\w+)}", op.path)
    path = re.sub(r"{(\w+)}", r"{q(str(\1), safe='')}", op.path)
    given = "".join(f", {name}" for name in names)
    line = f'    def {op.name}(self{given}, **given): return self._ask("{op.method}", f"{path}", given'
    return f"{line}{', True' if op.acts else ''})\n"


_HEAD = '''"""Client of Probing Cluster's API, made by `probing-ctl web client`: Client(url, token).jobs(user="ann")."""
import json, uuid
from urllib.parse import quote as q, urlencode
from urllib.request import Request, urlopen

class Client:
    def __init__(self, url, token, open=urlopen):
        self.url, self.token, self.open = url.rstrip("/") + "/api/v1", token, open

    def _ask(self, method, path, given, acts=False):
        key = given.pop("idempotency_key", None) or uuid.uuid4().hex
        given = {name: value for name, value in given.items() if value is not None}
        query = "?" + urlencode(given) if method == "GET" and given else ""
        body = json.dumps(given).encode() if method == "POST" else None
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Idempotency-Key": key} if acts else {}
        with self.open(Request(self.url + path + query, body, headers, method=method)) as answer:
            raw = answer.read()
            return json.loads(raw) if "json" in answer.headers["Content-Type"] else raw

    def pages(self, operation, **given):
        while True:
            page = operation(**given)
            yield from page["items"]
            if not page["next"]:
                return
            given["cursor"] = page["next"]

'''
