"""Operators on far Arrow tables, executed where the columns are: filter, project, aggregate, group by, join, sort, top k.

    import farside.compute as fc
    rides = fc.Table.from_arrow(table)                  # a copy in far memory
    hours = rides.group_by({"hour": fc.col("pickup").hour()}, {"rides": "count", "fare": ("mean", "fare")},
                           where=fc.col("metres") > 500)
    print(hours.to_arrow())                             # a pyarrow.Table

They are the operators of the C++ data frame (docs/guide/dataframes.md). With a memory server that executes functions
(`farside run --offload`, `farside serve --offload`) only the query and its result travel, where that takes less time.
Needs pyarrow: pip install 'farside[arrow]'."""
import importlib
import numbers
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ._compute import Frame, Item, Node, Nodes

Place = Literal["automatic", "near", "server"]
Order = Literal["ascending", "descending"]

_PLACES = ("automatic", "near", "server")  # as placement of include/farside/frame/execute.hpp
_ORDERS = ("ascending", "descending")
_TYPES = ("boolean", "integer", "float32", "float64", "date32", "timestamp", "string")


class Expression:
    """A value for each row: `col`, constants, `+ - * /`, comparisons, `& | ~` and the methods below.

    Arithmetic is done in float64. A column and a constant are compared exactly. A null operand gives null, but for
    `null & false` and `null | true`. Constants are int, float and str; dates and timestamps are compared with integers in
    their unit. Texts are compared with constants only."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def _then(self, op: str, *operands: Any) -> "Expression":
        return Expression((*self._nodes, *(node for operand in operands for node in nodes_of(operand)), Node(op)))

    def __add__(self, other: Any) -> "Expression":
        return self._then("+", other)

    def __radd__(self, other: Any) -> "Expression":
        return Expression(nodes_of(other))._then("+", self)

    def __sub__(self, other: Any) -> "Expression":
        return self._then("-", other)

    def __rsub__(self, other: Any) -> "Expression":
        return Expression(nodes_of(other))._then("-", self)

    def __mul__(self, other: Any) -> "Expression":
        return self._then("*", other)

    def __rmul__(self, other: Any) -> "Expression":
        return Expression(nodes_of(other))._then("*", self)

    def __truediv__(self, other: Any) -> "Expression":
        return self._then("/", other)

    def __rtruediv__(self, other: Any) -> "Expression":
        return Expression(nodes_of(other))._then("/", self)

    def __eq__(self, other: Any) -> "Expression":  # type: ignore[override]
        return self._then("==", other)

    def __ne__(self, other: Any) -> "Expression":  # type: ignore[override]
        return self._then("!=", other)

    def __lt__(self, other: Any) -> "Expression":
        return self._then("<", other)

    def __le__(self, other: Any) -> "Expression":
        return self._then("<=", other)

    def __gt__(self, other: Any) -> "Expression":
        return self._then(">", other)

    def __ge__(self, other: Any) -> "Expression":
        return self._then(">=", other)

    def __and__(self, other: Any) -> "Expression":
        return self._then("&", other)

    def __or__(self, other: Any) -> "Expression":
        return self._then("|", other)

    def __invert__(self) -> "Expression":
        return self._then("~")

    def __bool__(self) -> bool:
        raise TypeError("an expression is no truth value; combine expressions by & | ~, with parentheses around comparisons")

    __hash__ = None  # type: ignore[assignment]

    def is_null(self) -> "Expression":
        return self._then("is_null")

    def sqrt(self) -> "Expression":
        return self._then("sqrt")

    def sin(self) -> "Expression":
        return self._then("sin")

    def cos(self) -> "Expression":
        return self._then("cos")

    def asin(self) -> "Expression":
        return self._then("asin")

    def year(self) -> "Expression":
        """Of a column of dates or timestamps, in UTC, as the next ones: an int64."""
        return self._then("year")

    def month(self) -> "Expression":
        return self._then("month")

    def day(self) -> "Expression":
        return self._then("day")

    def hour(self) -> "Expression":
        return self._then("hour")

    def minute(self) -> "Expression":
        return self._then("minute")

    def weekday(self) -> "Expression":
        """0 is Sunday."""
        return self._then("weekday")


def col(name: str) -> Expression:
    """The column of this name, of the table on which the expression is used."""
    return Expression((Node("column", name),))


def nodes_of(value: Any) -> Nodes:
    """Those of an expression or a constant."""
    if isinstance(value, Expression):
        return value._nodes
    if isinstance(value, str):
        return (Node("text", value),)
    if isinstance(value, numbers.Integral):
        number = int(value)
        if not -1 << 63 <= number < 1 << 64:
            raise OverflowError(f"the constant {number} does not fit into 64 bits; use a float")
        return (Node("integer" if number < 1 << 63 else "unsigned", bits=number % (1 << 64)),)
    if isinstance(value, numbers.Real):
        return (Node("real", bits=struct.unpack("Q", struct.pack("d", float(value)))[0]),)
    raise TypeError(f"{value!r} is no constant of an expression; use int, float or str, and for dates an integer in the column's unit")


Keys = str | Sequence[str] | Mapping[str, Expression]
Aggregates = Mapping[str, str | tuple[str, str | Expression]]


def _value(of: str | Expression) -> Nodes:
    return nodes_of(col(of) if isinstance(of, str) else of)


def _keys(keys: Keys) -> list[Item]:
    if isinstance(keys, Mapping):
        return [Item(name, _value(of)) for name, of in keys.items()]
    return [Item(name, nodes_of(col(name))) for name in ([keys] if isinstance(keys, str) else keys)]


def _aggregates(aggregates: Aggregates) -> list[Item]:
    return [Item(name, op=of) if isinstance(of, str) else Item(name, _value(of[1]), of[0]) for name, of in aggregates.items()]


def _condition(where: Expression | None) -> Nodes:
    return () if where is None else nodes_of(where)


def _one_array(name: str, column: Any) -> Any:
    """A column of a pyarrow.Table as one array, where far tables have its type."""
    pa = importlib.import_module("pyarrow")
    if not any(getattr(pa.types, f"is_{kind}")(column.type) for kind in _TYPES):
        raise TypeError(f"column {name!r} has the type {column.type}, which far tables do not have; cast it before to one of: "
                        f"{', '.join(_TYPES)}")
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


class Table:
    """A table in far memory. It never changes; its operators return new ones, which share columns with it.

    Columns are boolean, integer, float32, float64, date32, timestamp or string. Names that the table lacks, types that
    do not fit and unknown operations raise ValueError, sums that do not fit into 64 bits OverflowError, used up far memory
    MemoryError; a server that is required and fails OSError. Thread-safe. Releases the GIL while it computes."""

    def __init__(self, frame: Frame, place: Place) -> None:
        """Not for programs: they use from_arrow."""
        pa = importlib.import_module("pyarrow")
        self._frame, self._place = frame, place
        self._arrow = pa.Table.from_batches([frame.to_batch(pa.RecordBatch)])

    @classmethod
    def from_arrow(cls, data: Any, *, place: Place = "automatic") -> "Table":
        """A copy of a pyarrow.Table or RecordBatch in far memory.

        place: where operators of it and of tables made of it are executed: "near"; on the memory "server" that has the
        columns; or, "automatic", where it is expected to take less time. The results are the same, to the last bit.

        Raises TypeError for other objects and for columns of other types, ValueError for columns of the same name and
        for more than 2 GiB of text in one."""
        pa = importlib.import_module("pyarrow")
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if not isinstance(data, pa.Table):
            raise TypeError(f"{type(data).__name__} is no table of Arrow; use a pyarrow.Table or RecordBatch")
        if place not in _PLACES:
            raise ValueError(f"{place!r} is no place; use {', '.join(_PLACES)}")
        return cls(Frame.of((name, _one_array(name, column)) for name, column in zip(data.column_names, data.columns)), place)

    def to_arrow(self) -> Any:
        """A pyarrow.Table whose columns are this table's: nothing is copied."""
        return self._arrow

    @property
    def column_names(self) -> list[str]:
        return list(self._arrow.column_names)

    @property
    def num_rows(self) -> int:
        return int(self._arrow.num_rows)

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"farside.compute.Table of {self.num_rows} rows: {', '.join(self.column_names)}"

    def _run(self, operation: str, *, keys: Sequence[Item] = (), aggregates: Sequence[Item] = (), condition: Nodes = (),
             **more: Any) -> "Table":
        used = (node.text for item in (*keys, *aggregates, Item("", condition)) for node in item.of if node.op == "column")
        if missing := [name for name in used if name not in self._arrow.column_names]:
            raise ValueError(f"the table has no column {missing[0]!r}; it has {', '.join(map(repr, self.column_names)) or 'none'}")
        frame = self._frame.run(operation, _PLACES.index(self._place), keys=keys, aggregates=aggregates, condition=condition, **more)
        return Table(frame, self._place)

    def select(self, names: Sequence[str]) -> "Table":
        """These columns, in this order. Copies nothing."""
        return self._run("select", keys=_keys(names))

    def with_column(self, name: str, value: Expression) -> "Table":
        """All columns and a computed one: float64; int64 for parts of dates; boolean for conditions."""
        return self._run("with_column", keys=[Item(name, nodes_of(value))])

    def filter(self, condition: Expression) -> "Table":
        """The rows for which the condition is true, not null, in their order."""
        return self._run("filter", condition=nodes_of(condition))

    def take(self, rows: Iterable[int]) -> "Table":
        """The rows of these numbers, in this order. IndexError for one that the table does not have."""
        pa = importlib.import_module("pyarrow")
        array = rows if isinstance(rows, pa.Array) else pa.array(rows)
        return self._run("take", other=Frame.of([("rows", array.cast(pa.int64()))]))

    def aggregate(self, aggregates: Aggregates, *, where: Expression | None = None) -> "Table":
        """One row with a column for each aggregate of the rows for which `where` is true.

        aggregates: by name, (operation, column or expression), or "count", which counts rows: {"rides": "count",
        "most": ("max", "fare")}. Operations: "count", "sum", "min", "max", "mean". Nulls are left out; of no values count is 0
        and the others are null. Sums of integers are int64 (uint64 of unsigned ones), others float64, which are compensated. A
        NaN is greater than all numbers. Texts can be counted only."""
        return self._run("aggregate", aggregates=_aggregates(aggregates), condition=_condition(where))

    def group_by(self, keys: Keys, aggregates: Aggregates, *, where: Expression | None = None) -> "Table":
        """A row for each group of rows with equal keys, in order of their first rows: the keys, then the aggregates.

        keys: a name, names, or expressions by name: {"hour": col("pickup").hour()}; null is a key like others. aggregates,
        where: as of `aggregate`. The groups are near memory meanwhile."""
        return self._run("group_by", keys=_keys(keys), aggregates=_aggregates(aggregates), condition=_condition(where))

    def join(self, small: "Table", on: str | Sequence[str], small_on: str | Sequence[str] | None = None) -> "Table":
        """The inner join with a small table, in the order of this one: all columns of both, but the small one's keys.

        small_on: the names of its keys, if they are others. Keys have the same types; null matches nothing. Other
        columns must have different names. The small table's keys are near memory meanwhile, about 40 bytes a row."""
        names = [[keys] if isinstance(keys, str) else list(keys) for keys in (on, on if small_on is None else small_on)]
        if len(names[0]) != len(names[1]):
            raise ValueError(f"the keys {names[0]} and {names[1]} of a join differ in number")
        small.select(names[1])  # names them, if it has others
        keys = [Item(name, nodes_of(col(name)), of_small) for name, of_small in zip(*names)]
        return self._run("join", keys=keys, other=small._frame)

    def top_k(self, k: int, by: str | Expression, order: Order = "descending", *, where: Expression | None = None) -> "Table":
        """The k rows with the largest or, "ascending", smallest values, best first. Rows with equal values keep their
        order; those with null are left out. A NaN is greater than all numbers. Not by texts."""
        if k < 0:
            raise ValueError(f"k cannot be negative: {k}")
        is_descending = bool(_ORDERS.index(_known_order(order)))
        return self._run("top_k", keys=[Item("", _value(by))], condition=_condition(where), k=k, is_descending=is_descending)

    def sort_by(self, keys: str | Sequence[tuple[str, Order]]) -> "Table":
        """All rows in the order of one column, or of several with directions: [("a", "ascending"), ("b", "descending")]. As
        pyarrow.Table.sort_by: stable, NaN after numbers, null last.

        The order is found near, by pyarrow, which reads the keys' columns; the rows are copied by `take`."""
        pairs = [(keys, "ascending")] if isinstance(keys, str) else [(name, _known_order(order)) for name, order in keys]
        columns = self.select([name for name, _ in pairs]).to_arrow()
        return self.take(importlib.import_module("pyarrow.compute").sort_indices(columns, sort_keys=pairs))


def _known_order(order: str) -> str:
    if order not in _ORDERS:
        raise ValueError(f"{order!r} is no order; use {' or '.join(_ORDERS)}")
    return order
