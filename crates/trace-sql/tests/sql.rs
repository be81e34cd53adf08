//! `comb-trace-sql` as `comb trace sql` runs it: answers beside those that were counted by hand and those of DuckDB, and what is said of questions
//! that have none.
//!
//! `make setup-test` installs DuckDB. Without it the test that compares with it says that it did not run.

#[path = "../../trace/tests/engines/known_trace.rs"]
mod known_trace;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use comb_trace::store::{RECORDING_ENDING, TABLES, TABLES_FOLDER, ensure_tables};
use comb_trace::synthesis::{Amount, Model, write_trace};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};

use known_trace::{BEGAN_WALL_NS, alpha, beta, of_alpha, of_both};

/// The values of an object in the order in which they stand there.
struct Row(Value);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Row;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
                let mut values = Vec::new();
                while let Some((_, value)) = map.next_entry::<IgnoredAny, Value>()? {
                    values.push(value);
                }
                Ok(Row(Value::Array(values)))
            }
        }
        from.deserialize_map(Values)
    }
}

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    /// Its name has what means something in patterns and addresses.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb sql [{name}]*%20 {}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("temporary")).unwrap();
        Self(path)
    }

    /// With tables of the recordings that were written by hand.
    fn known(name: &str) -> Self {
        let folder = Self::new(name);
        for (name, recording) in [("alpha", alpha()), ("beta", beta())] {
            fs::write(folder.0.join(name).with_extension(RECORDING_ENDING), recording).unwrap();
        }
        assert!(ensure_tables(&folder.0, &mut |_| {}).unwrap().is_empty());
        folder
    }

    /// With tables of so many sessions that nobody had.
    fn made_up(name: &str, sessions: u64) -> Self {
        let folder = Self::new(name);
        let file = File::create(folder.0.join("made").with_extension(RECORDING_ENDING)).unwrap();
        write_trace(&Model::thesis(), 1, Amount::Sessions(sessions), file).unwrap();
        assert!(ensure_tables(&folder.0, &mut |_| {}).unwrap().is_empty());
        folder
    }

    fn tables(&self) -> PathBuf {
        self.0.join(TABLES_FOLDER)
    }

    fn program(&self, options: &[&str], query: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb-trace-sql"));
        command.args(options).arg(self.tables()).arg(query);
        command.stdin(Stdio::null()).env("TMPDIR", self.0.join("temporary"));
        command
    }

    fn run(&self, options: &[&str], query: &str) -> Output {
        self.program(options, query).output().unwrap()
    }

    #[track_caller]
    fn text(&self, options: &[&str], query: &str) -> String {
        let output = self.run(options, query);
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Rows as arrays, in the order of their columns.
    #[track_caller]
    fn rows(&self, query: &str) -> Value {
        let text = self.text(&["--json"], query);
        text.lines().map(|line| serde_json::from_str::<Row>(line).unwrap().0).collect()
    }

    /// What is said of a failure, with its exit status.
    #[track_caller]
    fn fails(&self, options: &[&str], query: &str) -> (i32, String) {
        let output = self.run(options, query);
        assert!(output.stdout.is_empty(), "{query}: {}", String::from_utf8_lossy(&output.stdout));
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    #[track_caller]
    fn has_no_temporary_files(&self) {
        assert_eq!(fs::read_dir(self.0.join("temporary")).unwrap().count(), 0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn answers_are_those_that_were_counted_by_hand() {
    let folder = Folder::known("known");
    let known = of_both();
    for (table, rows) in ["trace", "instance", "machine", "process", "user", "time"].iter().zip(known.rows) {
        assert_eq!(folder.rows(&format!("SELECT count(*) FROM {table}")), json!([[rows]]), "{table}");
    }
    let asked = [
        ("SELECT class, count(*) FROM trace JOIN operation USING (operation_id) GROUP BY class ORDER BY class", &known.classes),
        (
            "SELECT machine, process, sum(moved_bytes) FROM trace JOIN process USING (process_id, machine_id) JOIN machine USING (machine_id)
             GROUP BY machine, process ORDER BY machine, process",
            &known.bytes,
        ),
        (
            "SELECT access, pattern, count(*), sum(read_bytes), sum(written_bytes) FROM instance GROUP BY access, pattern
             ORDER BY access, pattern",
            &known.sessions,
        ),
        (
            "SELECT operation, error, count(*) FROM trace JOIN operation USING (operation_id) WHERE error <> 0 GROUP BY operation, error
             ORDER BY operation, error",
            &known.failures,
        ),
        (
            "SELECT year, month, day, weekday, hour, minute, second, count(*) FROM trace JOIN time USING (time_id)
             GROUP BY year, month, day, weekday, hour, minute, second ORDER BY second DESC",
            &known.seconds,
        ),
        (
            r#"SELECT DISTINCT machine, "user" FROM trace JOIN "user" USING (user_id, machine_id) JOIN machine USING (machine_id)
               ORDER BY machine, "user""#,
            &known.users,
        ),
        ("SELECT process, lifetime_ns FROM process ORDER BY process, lifetime_ns", &known.lifetimes),
    ];
    for (query, expected) in asked {
        assert_eq!(&folder.rows(query), expected, "{query}");
    }
    let paths: Value = known.paths.iter().map(|path| json!([path])).collect();
    assert_eq!(folder.rows("SELECT path FROM file WHERE path <> '' ORDER BY path"), paths);
    let opens = "SELECT count(*) FROM trace JOIN operation USING (operation_id) WHERE operation = 'open'";
    assert_eq!(folder.rows(opens), json!([[known.opens]]));
    let of_one = "SELECT count(*) FROM trace JOIN machine USING (machine_id) WHERE machine = 'alpha'";
    assert_eq!(folder.rows(of_one), json!([[of_alpha().rows[0]]]));
    let first = format!(
        "SELECT count(*) FROM trace WHERE start = to_timestamp_nanos({})",
        BEGAN_WALL_NS + known.first_ns
    );
    assert_eq!(folder.rows(&first), json!([[1]]));
    for (name, bytes, operations) in known.by_name {
        let query = format!(
            "SELECT sum(moved_bytes), count(*) FROM trace JOIN process USING (process_id) WHERE process = '{name}'"
        );
        assert_eq!(folder.rows(&query), json!([[bytes, operations]]));
    }
}

/// What stands in the document between `comb trace sql` and its quotes.
fn documented() -> Vec<String> {
    let document = include_str!("../../../docs/tracing.md");
    let queries = document.split("comb trace sql \"").skip(1).map(|rest| rest.split('"').next().unwrap());
    queries.filter(|query| query.starts_with("SELECT")).map(str::to_owned).collect()
}

#[test]
fn duckdb_answers_what_the_document_asks_in_the_same_way() {
    let queries = documented();
    assert!(queries.len() >= 3, "{queries:?}");
    let folder = Folder::made_up("document", 3000);
    let ours: Vec<Value> = queries.iter().map(|query| folder.rows(query)).collect();
    assert!(ours.iter().all(|rows| !rows.as_array().unwrap().is_empty()), "{ours:?}");

    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/peers");
    if !peers.join(".venv").exists() {
        eprintln!("not tested: duckdb is not installed; make setup-test installs it");
        return;
    }
    let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    let questions: serde_json::Map<String, Value> =
        queries.iter().map(|query| (query.clone(), json!(query))).collect();
    // The script's views are of a pattern.
    let plain = std::env::temp_dir().join(format!("comb-sql-tables-{}", std::process::id()));
    fs::rename(folder.tables(), &plain).unwrap();
    let asked = json!({ "folder": plain, "tables": names, "questions": questions, "document": [] });
    fs::write(folder.0.join("asked.json"), asked.to_string()).unwrap();
    let mut script = Command::new(peers.join(".venv/bin/python"));
    let output = script.arg(peers.join("engines.py")).arg(folder.0.join("asked.json")).output().unwrap();
    fs::remove_dir_all(plain).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (query, rows) in queries.iter().zip(ours) {
        assert_eq!(told["duckdb"]["answers"][query], rows, "{query}");
    }
}

#[test]
fn people_get_columns_and_programs_an_object_a_line() {
    let folder = Folder::known("forms");
    let query =
        "SELECT operation, count(*) AS times, max(error) FROM trace JOIN operation USING (operation_id)
                 WHERE operation IN ('open', 'rename') GROUP BY operation ORDER BY operation";
    let columns = "operation  times  max(trace.error)\nopen           7                 2\nrename         1                17\n";
    assert_eq!(folder.text(&[], query), columns);
    let times = "SELECT began, NULL AS nothing FROM machine ORDER BY machine LIMIT 1";
    assert_eq!(folder.text(&["--json"], times), "{\"began\":\"2024-02-29T23:59:59Z\",\"nothing\":null}\n");
    assert_eq!(folder.text(&[], times), "began                 nothing\n2024-02-29T23:59:59Z  NULL\n");
    // A name with a line end is in one line, and a name that two columns have is told apart.
    let lines = folder.text(&[], "SELECT path FROM file WHERE path LIKE '%quoted%'");
    assert!(lines.lines().count() == 2 && lines.contains("'quoted'\\n\""), "{lines}");
    let twice = folder.text(
        &["--json"],
        "SELECT trace.user_id, process.user_id FROM trace JOIN process USING (process_id) LIMIT 1",
    );
    assert!(twice.contains("\"trace.user_id\":") && twice.contains("\"process.user_id\":"), "{twice}");
    assert_eq!(folder.text(&[], "SELECT user_id FROM trace WHERE error = 1000"), "user_id\n");
    assert_eq!(folder.text(&["--json"], "SELECT user_id FROM trace WHERE error = 1000"), "");
}

#[test]
fn tables_and_columns_can_be_asked_for() {
    let folder = Folder::known("asked");
    let said = folder.text(&[], "SHOW TABLES");
    let described = folder.rows("DESCRIBE trace");
    assert!(TABLES.iter().all(|table| said.contains(&format!("{} ", table.name))), "{said}");
    assert_eq!(described[0], json!(["machine_id", "Int32", "NO"]));
    assert_eq!(described.as_array().unwrap().len(), comb_trace::store::TRACE.columns.len());
    assert!(folder.text(&[], "SHOW COLUMNS FROM file").contains("file_system"));
    assert!(folder.text(&[], "EXPLAIN SELECT count(*) FROM file WHERE inode > 3").contains("file.inode > "));
}

#[test]
fn what_makes_no_sense_is_said_with_what_would() {
    let folder = Folder::known("senseless");
    let asked = [
        ("SELECT proces FROM process", 2, "process.process"),
        ("SELECT 1 FROM traces", 2, "traces"),
        ("SELEKT 1", 2, "SELEKT"),
        ("SELECT nonsense(1)", 2, "nonsense"),
        ("SELECT 1; SELECT 2", 2, "single SQL statement"),
        ("SELECT 1 / (error - error) FROM trace", 1, "Divide by zero"),
        ("SELECT * FROM '/etc/passwd'", 2, "/etc/passwd"),
    ];
    for (query, code, words) in asked {
        let said = folder.fails(&[], query);
        assert!(
            said.0 == code && said.1.contains(words) && said.1.starts_with("comb: "),
            "{query}: {said:?}"
        );
        assert_eq!(said.1.lines().count(), 1, "{said:?}");
        let object: Value = serde_json::from_str(&folder.fails(&["--json"], query).1).unwrap();
        assert_eq!((object["code"].as_i64(), object["kind"].is_string()), (Some(code.into()), true));
    }
    let usage = Command::new(env!("CARGO_BIN_EXE_comb-trace-sql")).arg("--fly").output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn nothing_is_written() {
    let folder = Folder::known("read-only");
    let aim = folder.0.join("aim");
    let before = fs::read(folder.tables().join("complete")).unwrap();
    for query in [
        format!("COPY trace TO '{}' STORED AS PARQUET", aim.display()),
        format!("COPY (SELECT 1) TO '{}' STORED AS PARQUET", aim.display()),
        format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{}' STORED AS CSV", aim.display()),
        format!("CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION '{}'", aim.display()),
        "CREATE TABLE x AS SELECT 1".to_owned(),
        "CREATE VIEW x AS SELECT 1".to_owned(),
        "INSERT INTO operation VALUES (99, 'x', 'y')".to_owned(),
        "DROP TABLE trace".to_owned(),
        "SET datafusion.execution.batch_size = 1".to_owned(),
    ] {
        let (code, said) = folder.fails(&[], &query);
        assert!(code == 5 && said.contains("only read"), "{query}: {code} {said}");
    }
    assert!(!aim.exists() && before == fs::read(folder.tables().join("complete")).unwrap());
}

#[test]
fn a_damaged_table_has_no_answers_and_the_others_have() {
    let folder = Folder::known("damaged");
    let part = folder.tables().join("trace/part-00001.parquet");
    let good = fs::read(&part).unwrap();
    for place in (0..good.len()).step_by(good.len() / 5) {
        let mut bad = good.clone();
        bad[place] ^= 1;
        fs::write(&part, bad).unwrap();
        let (code, said) = folder.fails(&[], "SELECT count(*) FROM trace");
        assert!(
            code == 1 && said.contains("part-00001.parquet: it is not as it was written"),
            "{code} {said}"
        );
        assert_eq!(folder.rows("SELECT count(*) FROM machine"), json!([[2]]));
    }
    fs::remove_file(&part).unwrap();
    let (code, said) = folder.fails(&[], "SELECT 1 FROM machine WHERE EXISTS (SELECT 1 FROM trace)");
    assert!(code == 1 && said.contains("part-00001.parquet"), "{code} {said}");
}

/// Sorts all that there is.
const LARGE: &str = "SELECT * FROM trace ORDER BY duration_ns, start, file_id";

#[test]
fn what_does_not_fit_in_memory_goes_to_files_that_are_gone_afterwards() {
    let folder = Folder::made_up("spilled", 60_000);
    let expected = folder.text(&["--json"], LARGE);
    let little = ["--json", "--memory", "60000000"];
    assert!(expected.len() > 60_000_000 && folder.text(&little, LARGE) == expected);
    let analysed = folder.text(&little[1..], &format!("EXPLAIN ANALYZE {LARGE}"));
    let spilled = analysed.split("spill_count=").skip(1).any(|rest| !rest.starts_with('0'));
    assert!(spilled, "{analysed}");
    let (code, said) = folder.fails(&["--memory", "100000"], LARGE);
    assert!(code == 1 && said.contains("--memory"), "{code} {said}");
    folder.has_no_temporary_files();
}

#[test]
fn a_query_ends_with_a_signal_and_leaves_nothing() {
    let folder = Folder::made_up("signal", 60_000);
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        // Nobody reads its answer, so that it waits with its files.
        let mut command = folder.program(&["--memory", "60000000"], LARGE);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(folder.0.join("temporary")).unwrap().count() == 0 {
            assert!(Instant::now() < limit && child.try_wait().unwrap().is_none(), "it has no files");
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let status = child.wait().unwrap();
        assert_eq!((status.code(), status.signal()), (Some(code), None));
        folder.has_no_temporary_files();
    }
}

#[test]
fn who_has_read_enough_closes_the_pipe() {
    let folder = Folder::made_up("pipe", 60_000);
    for options in [&[][..], &["--json"]] {
        let mut command = folder.program(options, "SELECT * FROM trace");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success() && said.is_empty() && line.len() > 10, "{said}");
    }
}
