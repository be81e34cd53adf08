//! A table as a Parquet file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::StoreError;
use super::schema::{Kind, TableSchema};

/// As many rows are held before they are written: with twenty columns, forty megabytes.
const ROWS_IN_GROUP: usize = 1 << 18;

/// As many rows are read at a time.
const ROWS_IN_BATCH: usize = 1 << 15;

/// Traces compress well, and are read more often than written.
const COMPRESSION_LEVEL: i32 = 3;

/// Writes a table row by row.
pub struct TableWriter {
    schema: TableSchema,
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    numbers: Vec<Vec<i64>>,
    texts: Vec<Vec<ByteArray>>,
    rows: usize,
}

impl TableWriter {
    /// A new file in the table's folder.
    pub fn create(tables: &Path, schema: TableSchema, number: usize) -> Result<Self, StoreError> {
        let folder = tables.join(schema.name);
        let path = folder.join(format!("part-{number:05}.parquet"));
        let failed = |error| StoreError::Io { path: path.clone(), error };
        fs::create_dir_all(&folder).map_err(failed)?;
        let file = File::create(&path).map_err(failed)?;
        let writer = SerializedFileWriter::new(file, parquet_schema(&schema), properties(&schema))
            .map_err(|error| table_error(&path, &error))?;
        let numbers = schema.numbers();
        Ok(Self {
            schema,
            path,
            writer,
            numbers: vec![Vec::new(); numbers],
            texts: vec![Vec::new(); schema.columns.len() - numbers],
            rows: 0,
        })
    }

    /// Adds a row: its numbers and its texts, in the order of the columns.
    pub fn add(&mut self, numbers: &[i64], texts: &[&[u8]]) -> Result<(), StoreError> {
        debug_assert_eq!(
            (numbers.len(), texts.len()),
            (self.numbers.len(), self.texts.len()),
            "{}",
            self.schema.name
        );
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.push(*number);
        }
        for (column, text) in self.texts.iter_mut().zip(texts) {
            column.push(readable(text).into_bytes().into());
        }
        self.rows += 1;
        if self.rows == ROWS_IN_GROUP { self.write_group() } else { Ok(()) }
    }

    /// Writes the rest, and how to find everything.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.write_group()?;
        let path = self.path;
        self.writer.close().map_err(|error| table_error(&path, &error))?;
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), StoreError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let path = self.path.clone();
        self.write_columns().map_err(|error| table_error(&path, &error))
    }

    fn write_columns(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let (mut numbers, mut texts) = (self.numbers.iter_mut(), self.texts.iter_mut());
        for (_, kind) in self.schema.columns {
            let mut column = group.next_column()?.expect("as many columns as in the schema");
            match kind {
                Kind::Text => {
                    let values = texts.next().expect("a column of texts");
                    column.typed::<ByteArrayType>().write_batch(values, None, None)?;
                    values.clear();
                }
                Kind::Small => {
                    let values = numbers.next().expect("a column of numbers");
                    let narrow: Vec<i32> = values.drain(..).map(saturated).collect();
                    column.typed::<Int32Type>().write_batch(&narrow, None, None)?;
                }
                Kind::Large | Kind::Time => {
                    let values = numbers.next().expect("a column of numbers");
                    column.typed::<Int64Type>().write_batch(values, None, None)?;
                    values.clear();
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

fn saturated(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// Bytes as text: what is none is written as its numbers.
pub(super) fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn table_error(path: &Path, error: &ParquetError) -> StoreError {
    let error = match error {
        ParquetError::External(cause) => cause.to_string(),
        other => other.to_string(),
    };
    StoreError::Table { path: path.to_path_buf(), error }
}

fn parquet_schema(schema: &TableSchema) -> TypePtr {
    let field = |(name, kind): &(&str, Kind)| {
        let (physical, logical) = match kind {
            Kind::Small => (Physical::INT32, None),
            Kind::Large => (Physical::INT64, None),
            Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS))),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical);
        Arc::new(field.build().expect("a column's type"))
    };
    let fields = schema.columns.iter().map(field).collect();
    Arc::new(Type::group_type_builder(schema.name).with_fields(fields).build().expect("a table's type"))
}

fn properties(schema: &TableSchema) -> WriterPropertiesPtr {
    let level = ZstdLevel::try_new(COMPRESSION_LEVEL).expect("a level that there is");
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(ROWS_IN_GROUP));
    for (name, kind) in schema.columns {
        // Times and numbers of things come in order, or nearly: differences are small.
        let is_ordered = *kind == Kind::Time
            || matches!(*name, "time_id" | "duration_ns" | "offset" | "instance_id" | "open_ns");
        if is_ordered {
            let column = ColumnPath::from(*name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Arc::new(properties.build())
}

/// Whoever is handed batches of rows: for each wanted column of numbers its values, for each of texts as well.
pub type Sink<'a> = dyn FnMut(&[Vec<i64>], &[Vec<String>]) + 'a;

/// Reads a table, only the columns that are wanted, a batch of rows at a time.
pub struct TableReader {
    files: Vec<PathBuf>,
    schema: TableSchema,
}

impl TableReader {
    /// All files of the table. One that was changed or damaged is an error.
    pub fn open(tables: &Path, schema: TableSchema) -> Result<Self, StoreError> {
        let files = super::checked_files(tables, schema.name)?;
        Ok(Self { files, schema })
    }

    /// Hands over batches: for each wanted column of numbers its values, for each of texts as well.
    pub fn read(&self, wanted: &[&str], sink: &mut Sink<'_>) -> Result<(), StoreError> {
        for path in &self.files {
            self.read_file(path, wanted, sink)?;
        }
        Ok(())
    }

    fn read_file(&self, path: &Path, wanted: &[&str], sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let failed = |error: &ParquetError| table_error(path, error);
        let file = File::open(path).map_err(|error| StoreError::Io { path: path.to_path_buf(), error })?;
        let reader = SerializedFileReader::new(file).map_err(|error| failed(&error))?;
        let described = reader.metadata().file_metadata().schema_descr();
        let mut places = Vec::new();
        for name in wanted {
            let kind = self.schema.columns[self.schema.column(name)].1;
            let physical = match kind {
                Kind::Small => Physical::INT32,
                Kind::Large | Kind::Time => Physical::INT64,
                Kind::Text => Physical::BYTE_ARRAY,
            };
            let place = (0..described.num_columns()).find(|&place| described.column(place).name() == *name);
            let place = place.filter(|&place| {
                let column = described.column(place);
                column.physical_type() == physical
                    && column.max_def_level() == 0
                    && column.max_rep_level() == 0
            });
            let error = || StoreError::Table {
                path: path.to_path_buf(),
                error: format!("it has no column {name} as comb writes it"),
            };
            places.push((place.ok_or_else(error)?, kind));
        }
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).map_err(|error| failed(&error))?;
            let columns = places.iter().map(|&(place, _)| group.get_column_reader(place));
            let mut columns = columns
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| failed(&error))?
                .into_iter()
                .map(Column::new)
                .collect::<Vec<_>>();
            loop {
                let (mut numbers, mut texts) = (Vec::new(), Vec::new());
                let mut rows = None;
                for column in &mut columns {
                    let read = column.read(&mut numbers, &mut texts).map_err(|error| failed(&error))?;
                    if rows.is_some_and(|rows| rows != read) {
                        return Err(StoreError::Table {
                            path: path.to_path_buf(),
                            error: "its columns differ in length".to_owned(),
                        });
                    }
                    rows = Some(read);
                }
                if rows.unwrap_or(0) == 0 {
                    break;
                }
                sink(&numbers, &texts);
            }
        }
        Ok(())
    }
}

/// A column of a group of rows, typed.
enum Column {
    Small(parquet::column::reader::ColumnReaderImpl<Int32Type>),
    Large(parquet::column::reader::ColumnReaderImpl<Int64Type>),
    Text(parquet::column::reader::ColumnReaderImpl<ByteArrayType>),
}

impl Column {
    fn new(reader: ColumnReader) -> Self {
        match reader {
            ColumnReader::Int32ColumnReader(_) => Self::Small(get_typed_column_reader(reader)),
            ColumnReader::ByteArrayColumnReader(_) => Self::Text(get_typed_column_reader(reader)),
            _ => Self::Large(get_typed_column_reader(reader)),
        }
    }

    fn read(
        &mut self,
        numbers: &mut Vec<Vec<i64>>,
        texts: &mut Vec<Vec<String>>,
    ) -> Result<usize, ParquetError> {
        match self {
            Self::Small(reader) => {
                let mut values = Vec::with_capacity(ROWS_IN_BATCH);
                let (rows, _, _) = reader.read_records(ROWS_IN_BATCH, None, None, &mut values)?;
                numbers.push(values.into_iter().map(i64::from).collect());
                Ok(rows)
            }
            Self::Large(reader) => {
                let mut values = Vec::with_capacity(ROWS_IN_BATCH);
                let (rows, _, _) = reader.read_records(ROWS_IN_BATCH, None, None, &mut values)?;
                numbers.push(values);
                Ok(rows)
            }
            Self::Text(reader) => {
                let mut values = Vec::with_capacity(ROWS_IN_BATCH);
                let (rows, _, _) = reader.read_records(ROWS_IN_BATCH, None, None, &mut values)?;
                texts.push(values.iter().map(|value| readable(value.data())).collect());
                Ok(rows)
            }
        }
    }
}
