//! The tables as other engines read them: DuckDB, and pyarrow, whose reader of Parquet is that of many more.
//!
//! `make setup-test` installs both in a folder of their own, at pinned versions. Without it the test says that it did not run; with it, whatever
//! goes wrong is a failure.

#[path = "engines/known_trace.rs"]
mod known_trace;

use std::path::{Path, PathBuf};
use std::process::Command;

use comb_trace::store::{Kind, RECORDING_ENDING, TABLES, TABLES_FOLDER, ensure_tables};
use serde_json::{Value, json};

use known_trace::{BEGAN_WALL_NS, Known, alpha, beta, of_alpha, of_both};

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("comb-trace-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        Self(folder)
    }

    /// The tables of recordings.
    fn store(&self, recordings: &[(&str, Vec<u8>)]) -> PathBuf {
        for (name, recording) in recordings {
            let path = self.0.join(name).with_extension(RECORDING_ENDING);
            std::fs::write(path, recording).expect("a file");
        }
        let faults = ensure_tables(&self.0, &mut |_| {}).expect("tables");
        assert!(faults.is_empty(), "{faults:?}");
        self.0.join(TABLES_FOLDER)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// None where the peers are not installed.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/.venv/bin/python");
    if !python.exists() {
        eprintln!("not tested: duckdb and pyarrow are not installed; make setup-test installs them");
    }
    python.exists().then_some(python)
}

/// What is asked of DuckDB.
const QUESTIONS: &[(&str, &str)] = &[
    ("classes", "SELECT class, count(*) FROM trace JOIN operation USING (operation_id) GROUP BY class ORDER BY class"),
    (
        "bytes",
        "SELECT machine, process, sum(moved_bytes) FROM trace JOIN process USING (process_id, machine_id) JOIN machine USING (machine_id)
         GROUP BY machine, process ORDER BY machine, process",
    ),
    (
        "sessions",
        "SELECT access, pattern, count(*), sum(read_bytes), sum(written_bytes) FROM instance GROUP BY access, pattern ORDER BY access, pattern",
    ),
    (
        "session's operations",
        "SELECT count(*), sum(moved_bytes) FROM trace JOIN instance USING (instance_id) WHERE access = 3",
    ),
    ("failures", "SELECT operation, error, count(*) FROM trace JOIN operation USING (operation_id) WHERE error <> 0 GROUP BY ALL ORDER BY ALL"),
    ("first", "SELECT epoch_ns(min(start)) FROM trace"),
    (
        "seconds",
        "SELECT year, month, day, weekday, hour, minute, second, count(*) FROM trace JOIN time USING (time_id) GROUP BY ALL ORDER BY ALL",
    ),
    // The second that a fact's number stands for is the one that it began in.
    ("seconds off", "SELECT count(*) FROM trace WHERE time_id <> epoch_ns(start) // 1000000000"),
    ("users", "SELECT DISTINCT machine, \"user\" FROM trace JOIN \"user\" USING (user_id, machine_id) JOIN machine USING (machine_id) ORDER BY ALL"),
    ("paths", "SELECT path FROM file WHERE path <> '' ORDER BY encode(path)"),
    ("types", "SELECT DISTINCT type, category FROM file JOIN file_type USING (type_id) WHERE path LIKE '%.o'"),
    (
        "lifetimes",
        "SELECT process, lifetime_ns FROM process ORDER BY ALL",
    ),
    // A number of a fact that means nothing.
    ("lost process", "SELECT count(*) FROM trace ANTI JOIN process USING (process_id)"),
    ("lost file", "SELECT count(*) FROM trace ANTI JOIN file USING (file_id) WHERE file_id <> -1"),
    ("lost type", "SELECT count(*) FROM trace ANTI JOIN file_type USING (type_id) WHERE type_id <> -1"),
    ("lost session", "SELECT count(*) FROM trace ANTI JOIN instance USING (instance_id) WHERE instance_id <> 0"),
    ("lost user", "SELECT count(*) FROM trace ANTI JOIN \"user\" USING (user_id, machine_id) WHERE user_id <> -1"),
    ("lost second", "SELECT count(*) FROM instance ANTI JOIN time USING (time_id)"),
    // A number that means two things: a join would count its facts twice.
    ("twice", "SELECT 'process' FROM process GROUP BY process_id HAVING count(*) > 1
               UNION ALL SELECT 'file' FROM file GROUP BY file_id HAVING count(*) > 1
               UNION ALL SELECT 'type' FROM file_type GROUP BY type_id HAVING count(*) > 1
               UNION ALL SELECT 'operation' FROM operation GROUP BY operation_id HAVING count(*) > 1
               UNION ALL SELECT 'session' FROM instance GROUP BY instance_id HAVING count(*) > 1
               UNION ALL SELECT 'machine' FROM machine GROUP BY machine_id HAVING count(*) > 1
               UNION ALL SELECT 'user' FROM \"user\" GROUP BY user_id, machine_id HAVING count(*) > 1
               UNION ALL SELECT 'time' FROM time GROUP BY time_id HAVING count(*) > 1"),
];

const LOST: [&str; 7] =
    ["lost process", "lost file", "lost type", "lost session", "lost user", "lost second", "seconds off"];

fn ask(python: &Path, folder: &Folder, tables: &Path, document: &[String]) -> Value {
    let questions: serde_json::Map<String, Value> =
        QUESTIONS.iter().map(|(name, question)| ((*name).to_owned(), json!(question))).collect();
    let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    let asked = json!({ "folder": tables, "tables": names, "questions": questions, "document": document })
        .to_string();
    let path = folder.0.join("asked.json");
    std::fs::write(&path, asked).expect("a file");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/engines.py");
    let output = Command::new(python).arg(script).arg(&path).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Every column has the name and the type that the schema gives it, and none lacks values.
fn check_columns(told: &Value) {
    let types = |kind: Kind| match kind {
        Kind::Small => ("INTEGER", "int32"),
        Kind::Large => ("BIGINT", "int64"),
        Kind::Time => ("TIMESTAMPTZ_NS", "timestamp[ns, tz=UTC]"),
        Kind::Text => ("VARCHAR", "string"),
    };
    for table in TABLES {
        let columns = |of: fn((&'static str, &'static str)) -> &'static str| -> Value {
            table.columns.iter().map(|(name, kind)| json!([name, of(types(*kind))])).collect()
        };
        assert_eq!(told["duckdb"]["columns"][table.name], columns(|types| types.0), "{}", table.name);
        assert_eq!(told["pyarrow"]["columns"][table.name], columns(|types| types.1), "{}", table.name);
    }
    assert_eq!(told["pyarrow"]["nullable"], json!([]));
}

fn check(told: &Value, known: &Known) {
    check_columns(told);
    let answers = &told["duckdb"]["answers"];
    for engine in ["duckdb", "pyarrow"] {
        let rows = &told[engine]["rows"];
        let counts = ["trace", "instance", "machine", "process", "user", "time"].map(|table| &rows[table]);
        assert_eq!(json!(counts), json!(known.rows), "{engine}");
    }
    assert_eq!(answers["classes"], known.classes);
    assert_eq!(told["pyarrow"]["classes"], known.classes);
    assert_eq!(answers["bytes"], known.bytes);
    assert_eq!(told["pyarrow"]["bytes"], json!(known.by_name.map(|(name, bytes, _)| (name, bytes))));
    assert_eq!(answers["sessions"], known.sessions);
    assert_eq!(answers["session's operations"], json!([[4, 768]]));
    assert_eq!(answers["failures"], known.failures);
    assert_eq!(answers["first"], json!([[BEGAN_WALL_NS + known.first_ns]]));
    assert_eq!(told["pyarrow"]["first_start_ns"], json!(BEGAN_WALL_NS + known.first_ns));
    assert_eq!(answers["seconds"], known.seconds);
    assert_eq!(answers["users"], known.users);
    assert_eq!(answers["paths"], known.paths.iter().map(|path| json!([path])).collect::<Value>());
    assert_eq!(told["pyarrow"]["paths"], json!(known.paths));
    assert_eq!(answers["types"], json!([["object", "program"]]));
    assert_eq!(answers["lifetimes"], known.lifetimes);
    for lost in LOST {
        assert_eq!(answers[lost], json!([[0]]), "{lost}");
    }
    assert_eq!(answers["twice"], json!([]));
}

#[test]
fn duckdb_and_pyarrow_read_what_was_recorded() {
    let Some(python) = python() else { return };
    let folder = Folder::new("one-engine");
    let tables = folder.store(&[("alpha", alpha())]);
    check(&ask(&python, &folder, &tables, &[]), &of_alpha());
}

#[test]
fn recordings_of_two_machines_are_one_table() {
    let Some(python) = python() else { return };
    let folder = Folder::new("engines");
    let tables = folder.store(&[("alpha", alpha()), ("beta", beta())]);
    for table in ["trace", "instance", "file", "process", "user", "time", "machine"] {
        let parts = std::fs::read_dir(tables.join(table)).expect("a folder").count();
        assert_eq!(parts, 2, "{table}");
    }
    check(&ask(&python, &folder, &tables, &[]), &of_both());
}

/// The blocks of a language in the document.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let ends = document.split(&opening).skip(1);
    ends.map(|rest| rest.split("```").next().expect("what is before the end")).collect()
}

/// What the document says that one should ask is answered.
#[test]
fn what_the_document_shows_can_be_asked() {
    let document = include_str!("../../../docs/tracing.md");
    let folder = Folder::new("document");
    let tables = folder.store(&[("alpha", alpha()), ("beta", beta())]);
    let place = folder.0.display().to_string();
    let mut questions: Vec<String> =
        blocks(document, "sql").iter().map(|block| block.replace("comb-trace-…", &place)).collect();
    assert_eq!(questions.len(), 1, "each has its answer below");
    // Spark is too large to be here. Its second statement is everybody's SQL, and of its first the folder is what counts.
    let spark = blocks(document, "sh").into_iter().find(|block| block.starts_with("spark-sql "));
    let spark = spark.expect("a command").split('"').nth(1).expect("what is in quotes");
    let (table, question) = spark.split_once("; ").expect("two statements");
    let location = table.split('\'').nth(1).expect("a place");
    assert_eq!(table.replace(location, "…"), "CREATE TEMPORARY VIEW trace USING parquet OPTIONS (path '…')");
    let location = location.replace("/share/week", &place);
    assert_eq!(Path::new(&location), tables.join("trace"));
    questions
        .push(format!("CREATE VIEW trace AS SELECT * FROM '{location}/*.parquet'; {question} ORDER BY 1"));

    let Some(python) = python() else { return };
    let told = ask(&python, &folder, &tables, &questions);
    let known = of_both();
    let mut by_process = known.by_name;
    by_process.sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
    assert_eq!(told["duckdb"]["document"][0], json!(by_process));
    let by_operation = told["duckdb"]["document"][1].as_array().expect("rows");
    let operations: u64 = by_operation.iter().map(|row| row[1].as_u64().expect("a count")).sum();
    assert_eq!(operations, known.rows[0]);
    assert_eq!(by_operation[0], json!([1, known.opens]));
}

/// The names of columns that the document lists are those that there are.
#[test]
fn the_document_lists_all_columns() {
    let document = include_str!("../../../docs/tracing.md");
    for table in TABLES {
        let start = format!("| `{}` | ", table.name);
        let line = document.lines().find(|line| line.starts_with(&start)).expect("a row of each table");
        let columns = &line[start.len()..];
        let listed: Vec<&str> = columns.split('`').skip(1).step_by(2).collect();
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, names, "{}", table.name);
    }
}

#[test]
fn tables_are_made_anew_of_other_recordings_and_for_other_columns() {
    let folder = Folder::new("anew");
    let tables = folder.store(&[("alpha", alpha())]);
    let complete = tables.join("complete");
    let parts = || std::fs::read_dir(tables.join("trace")).expect("a folder").count();
    let marked = "columns 00000000 of another version\n";
    let mark = || std::fs::write(&complete, format!("{marked}recordings 00000000\n")).expect("a file");
    let is_marked = || std::fs::read_to_string(&complete).expect("a file").starts_with(marked);
    mark();
    folder.store(&[]);
    assert!(!is_marked(), "another version's were kept");

    let before = std::fs::read_to_string(&complete).expect("a file");
    folder.store(&[]);
    assert_eq!(std::fs::read_to_string(&complete).expect("a file"), before);
    // It comes from elsewhere, and is older than the tables.
    let beta_path = folder.0.join("beta").with_extension(RECORDING_ENDING);
    std::fs::write(&beta_path, beta()).expect("a file");
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::options()
        .write(true)
        .open(&beta_path)
        .expect("a file")
        .set_modified(long_ago)
        .expect("a time");
    folder.store(&[]);
    assert_eq!(parts(), 2);

    for name in ["alpha", "beta"] {
        std::fs::remove_file(folder.0.join(name).with_extension(RECORDING_ENDING)).expect("a file");
    }
    folder.store(&[]);
    assert_eq!(parts(), 2, "tables without recordings are kept");
    mark();
    let error = ensure_tables(&folder.0, &mut |_| {}).expect_err("of another version").to_string();
    assert!(error.contains("another version of Comb"), "{error}");
}
