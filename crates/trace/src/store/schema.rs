//! What stands in which table.

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number of up to 32 bits.
    Small,
    /// A number of up to 64 bits.
    Large,
    /// Nanoseconds since 1970.
    Time,
    /// Text.
    Text,
}

/// A table's name and columns. Texts come last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSchema {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [(&'static str, Kind)],
}

impl TableSchema {
    /// How many of its columns are numbers.
    pub fn numbers(&self) -> usize {
        self.columns.iter().filter(|(_, kind)| *kind != Kind::Text).count()
    }

    /// Where a column stands. Panics if there is none of this name: only for names in our own source.
    pub fn column(&self, name: &str) -> usize {
        let found = self.columns.iter().position(|(column, _)| *column == name);
        found.unwrap_or_else(|| panic!("{} has no column {name}", self.name))
    }
}

/// Facts: an operation a row.
pub const TRACE: TableSchema = TableSchema {
    name: "trace",
    columns: &[
        ("machine_id", Kind::Small),
        ("time_id", Kind::Large),
        ("start", Kind::Time),
        ("duration_ns", Kind::Large),
        ("operation_id", Kind::Small),
        ("process_id", Kind::Large),
        ("user_id", Kind::Large),
        ("thread", Kind::Small),
        ("file_id", Kind::Large),
        ("type_id", Kind::Small),
        ("other_file_id", Kind::Large),
        ("instance_id", Kind::Large),
        ("descriptor", Kind::Small),
        ("error", Kind::Small),
        ("result", Kind::Large),
        ("offset", Kind::Large),
        ("asked_bytes", Kind::Large),
        ("moved_bytes", Kind::Large),
        ("argument", Kind::Large),
        ("size_bytes", Kind::Large),
        ("flags", Kind::Small),
        ("pages", Kind::Small),
    ],
};

/// Facts: a session a row.
pub const INSTANCE: TableSchema = TableSchema {
    name: "instance",
    columns: &[
        ("instance_id", Kind::Large),
        ("machine_id", Kind::Small),
        ("time_id", Kind::Large),
        ("opened", Kind::Time),
        ("closed", Kind::Time),
        ("open_ns", Kind::Large),
        ("process_id", Kind::Large),
        ("user_id", Kind::Large),
        ("file_id", Kind::Large),
        ("type_id", Kind::Small),
        ("open_flags", Kind::Large),
        ("seen_from_its_open", Kind::Small),
        ("created", Kind::Small),
        ("ending", Kind::Small),
        ("access", Kind::Small),
        ("pattern", Kind::Small),
        ("opened_size_bytes", Kind::Large),
        ("closed_size_bytes", Kind::Large),
        ("reads", Kind::Large),
        ("read_bytes", Kind::Large),
        ("writes", Kind::Large),
        ("written_bytes", Kind::Large),
        ("sequential_bytes", Kind::Large),
        ("runs", Kind::Large),
        ("lists", Kind::Large),
        ("maps", Kind::Large),
        ("controls", Kind::Large),
        ("syncs", Kind::Large),
        ("errors", Kind::Large),
        ("missed_reads", Kind::Large),
        ("pages", Kind::Large),
        ("data_ns", Kind::Large),
    ],
};

const MACHINE: TableSchema = TableSchema {
    name: "machine",
    columns: &[
        ("machine_id", Kind::Small),
        ("began", Kind::Time),
        ("ended", Kind::Time),
        ("recorded", Kind::Large),
        ("lost", Kind::Large),
        ("foreign_calls", Kind::Large),
        ("clock_step_ns", Kind::Large),
        ("suspended_ns", Kind::Large),
        ("undelivered", Kind::Large),
        ("machine", Kind::Text),
        ("kernel", Kind::Text),
        ("mechanism", Kind::Text),
        ("lacks", Kind::Text),
        ("command", Kind::Text),
        ("suspension", Kind::Text),
    ],
};

const USER: TableSchema = TableSchema {
    name: "user",
    columns: &[("user_id", Kind::Large), ("machine_id", Kind::Small), ("user", Kind::Text)],
};

const PROCESS: TableSchema = TableSchema {
    name: "process",
    columns: &[
        ("process_id", Kind::Large),
        ("machine_id", Kind::Small),
        ("number", Kind::Large),
        ("parent_id", Kind::Large),
        ("user_id", Kind::Large),
        ("executable_id", Kind::Large),
        ("began", Kind::Time),
        ("lifetime_ns", Kind::Large),
        ("process", Kind::Text),
    ],
};

const FILE: TableSchema = TableSchema {
    name: "file",
    columns: &[
        ("file_id", Kind::Large),
        ("machine_id", Kind::Small),
        ("type_id", Kind::Small),
        ("inode", Kind::Large),
        ("device", Kind::Large),
        ("mode", Kind::Small),
        ("path", Kind::Text),
        ("file_system", Kind::Text),
    ],
};

const FILE_TYPE: TableSchema = TableSchema {
    name: "file_type",
    columns: &[("type_id", Kind::Small), ("type", Kind::Text), ("category", Kind::Text)],
};

const OPERATION: TableSchema = TableSchema {
    name: "operation",
    columns: &[("operation_id", Kind::Small), ("operation", Kind::Text), ("class", Kind::Text)],
};

const TIME: TableSchema = TableSchema {
    name: "time",
    columns: &[
        ("time_id", Kind::Large),
        ("second", Kind::Small),
        ("minute", Kind::Small),
        ("hour", Kind::Small),
        ("weekday", Kind::Small),
        ("day", Kind::Small),
        ("month", Kind::Small),
        ("year", Kind::Small),
    ],
};

/// All of them.
pub const TABLES: &[TableSchema] =
    &[TRACE, INSTANCE, MACHINE, USER, PROCESS, FILE, FILE_TYPE, OPERATION, TIME];

/// The table of this name. Panics if there is none: only for names in our own source.
pub fn named(name: &str) -> TableSchema {
    TABLES.iter().copied().find(|table| table.name == name).unwrap_or_else(|| panic!("no table {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_last_and_no_name_twice() {
        for table in TABLES {
            let is_text: Vec<_> = table.columns.iter().map(|(_, kind)| *kind == Kind::Text).collect();
            assert!(is_text.is_sorted(), "{}", table.name);
            let mut names: Vec<_> = table.columns.iter().map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
        }
    }
}
