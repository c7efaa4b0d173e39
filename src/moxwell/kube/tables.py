"""Lists as tables with the server's printer columns, as ``kubectl get`` shows them."""

from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from moxwell.api.kinds import Object, Resource
from moxwell.api.meta import ListMeta, ObjectMeta, Value
from moxwell.kube.caller import JSON, Caller, selecting, words
from moxwell.kube.codec import Codec
from moxwell.kube.options import Terms

ACCEPT = f"application/json;as=Table;v=v1;g=meta.k8s.io,{JSON}"


class ColumnDefinition(Struct, frozen=True, kw_only=True):
    """A column; priority above 0 is for wide output."""

    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class _Partial(Value, frozen=True, kw_only=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


class TableRow(Struct, frozen=True, kw_only=True):
    """One row: the cells of an object."""

    cells: tuple[Any, ...] = ()
    object: _Partial = field(default_factory=_Partial)


class PrinterTable(Struct, frozen=True, kw_only=True):
    """Columns and rows."""

    columns: tuple[ColumnDefinition, ...] = field(name="columnDefinitions", default=())
    rows: tuple[TableRow, ...] = ()
    metadata: ListMeta = field(default_factory=ListMeta)


_TABLE = msgspec.json.Decoder(PrinterTable)


class _Asks(Protocol):
    _caller: Caller

    def _codec(self, kind: Any) -> Codec[Any]: ...


class PrinterTables:
    """Reads tables."""

    async def table(
        self: _Asks,
        kind: type[Object] | Resource,
        namespace: str = "",
        *,
        name: str = "",
        labels: Terms = "",
        fields: Terms = "",
    ) -> PrinterTable:
        """One object or a whole list as a table."""
        path = self._codec(kind).resource.path(namespace, name)
        select = () if name else selecting(labels, fields)
        rows: list[TableRow] = []
        more = ""
        while True:
            query = [*words(includeObject="Metadata", continue_=more), *select]
            if not name:
                query += words(limit=500)
            answer = await self._caller.call("GET", path, query=query, accept=ACCEPT)
            page = _TABLE.decode(answer.body)
            rows += page.rows
            more = page.metadata.continue_
            if not more:
                return msgspec.structs.replace(page, rows=tuple(rows))
