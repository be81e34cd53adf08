"""What DuckDB and pyarrow read in the tables that engines.rs made: JSON in, JSON out."""

import json
import sys
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as dataset


def plain(value):
    """Bytes and times have no place in JSON; both would be a surprise here, and are shown as what they are."""
    return value if isinstance(value, (int, float, str, type(None))) else repr(value)


def in_duckdb(asked):
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    told = {"columns": {}, "rows": {}, "answers": {}, "document": []}
    for table in asked["tables"]:
        engine.execute(f"CREATE VIEW {table} AS SELECT * FROM '{asked['folder']}/{table}/*.parquet'")
        told["columns"][table] = [row[:2] for row in engine.execute(f"DESCRIBE {table}").fetchall()]
        told["rows"][table] = engine.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    for name, question in asked["questions"].items():
        told["answers"][name] = [[plain(value) for value in row] for row in engine.execute(question).fetchall()]
    # Each by itself: what a document shows needs nothing that was set up here.
    for question in asked["document"]:
        rows = duckdb.connect().execute(question).fetchall()
        told["document"].append([[plain(value) for value in row] for row in rows])
    return told


def in_pyarrow(asked):
    """A folder is a table, as engines for many machines take it."""
    tables = {name: dataset.dataset(Path(asked["folder"], name), format="parquet").to_table() for name in asked["tables"]}
    for table in tables.values():
        table.validate(full=True)
    told = {
        "columns": {name: [[field.name, str(field.type)] for field in table.schema] for name, table in tables.items()},
        "nullable": [f"{name}.{field.name}" for name, table in tables.items() for field in table.schema if field.nullable],
        "rows": {name: table.num_rows for name, table in tables.items()},
    }
    facts = tables["trace"]
    classes = facts.join(tables["operation"], "operation_id").group_by("class").aggregate([("operation", "count")])
    told["classes"] = sorted([row["class"], row["operation_count"]] for row in classes.to_pylist())
    moved = facts.join(tables["process"].select(["process_id", "process"]), "process_id").group_by("process")
    told["bytes"] = sorted([row["process"], row["moved_bytes_sum"]] for row in moved.aggregate([("moved_bytes", "sum")]).to_pylist())
    told["first_start_ns"] = pc.min(facts["start"]).value
    told["paths"] = sorted(path for path in tables["file"]["path"].to_pylist() if path)
    return told


with open(sys.argv[1], encoding="utf-8") as question:
    asked = json.load(question)
json.dump({"duckdb": in_duckdb(asked), "pyarrow": in_pyarrow(asked)}, sys.stdout)
