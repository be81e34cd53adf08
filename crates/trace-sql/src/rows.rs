//! Rows as they are printed: columns for people, an object a line for programs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufWriter, StdoutLock, Write};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DFSchema;

use crate::failure::{Failure, Kind};

/// As many rows are held to see how wide their columns are: what comes later and is wider stands out. An answer may be larger than memory.
const ROWS_THAT_SET_WIDTHS: usize = 10_000;

/// Prints them as they come.
pub(crate) struct Rows {
    out: BufWriter<StdoutLock<'static>>,
    form: Form,
}

enum Form {
    Json(SchemaRef),
    Table(Table),
    /// A query's plan, which has lines.
    Plan,
}

impl Rows {
    pub(crate) fn new(schema: &DFSchema, is_json: bool, is_plan: bool) -> Self {
        let schema = distinct(schema);
        let form = if is_json {
            Form::Json(schema)
        } else if is_plan {
            Form::Plan
        } else {
            Form::Table(Table::new(&schema))
        };
        Self { out: BufWriter::new(std::io::stdout().lock()), form }
    }

    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        match &mut self.form {
            Form::Json(schema) => {
                let named = RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())?;
                let mut writer =
                    WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut self.out);
                writer.write(&named)?;
                writer.finish()?;
            }
            Form::Table(table) => {
                table.held.append(&mut cells(batch)?);
                if table.held.len() >= ROWS_THAT_SET_WIDTHS || table.widths.is_some() {
                    self.out.write_all(table.take().as_bytes())?;
                }
            }
            Form::Plan => {
                let format = FormatOptions::new();
                let column = batch.columns().last().expect("a plan's columns are its kind and its text");
                let lines = ArrayFormatter::try_new(column.as_ref(), &format)?;
                for row in 0..batch.num_rows() {
                    writeln!(self.out, "{}", lines.value(row).to_string().trim_end())?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if let Form::Table(table) = &mut self.form {
            self.out.write_all(table.take().as_bytes())?;
        }
        self.out.flush()?;
        Ok(())
    }
}

/// The columns' names, of which SQL allows several that are alike: those have their table's before them.
fn distinct(schema: &DFSchema) -> SchemaRef {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for field in schema.fields() {
        *times.entry(field.name()).or_default() += 1;
    }
    let field = |(table, field): (Option<&_>, &Arc<Field>)| match table {
        Some(table) if times[field.name().as_str()] > 1 => {
            Arc::new(field.as_ref().clone().with_name(format!("{table}.{}", field.name())))
        }
        _ => Arc::clone(field),
    };
    Arc::new(Schema::new(schema.iter().map(field).collect::<Vec<_>>()))
}

fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
    let format = FormatOptions::new().with_null("NULL");
    let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &format));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let row = |row| columns.iter().map(|column| printable(&column.value(row).to_string())).collect();
    Ok((0..batch.num_rows()).map(row).collect())
}

/// A file's name may hold what moves a terminal's cursor, or ends a line.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Columns two blanks apart, numbers at their right end.
struct Table {
    names: Vec<String>,
    is_number: Vec<bool>,
    held: Vec<Vec<String>>,
    /// Once rows were printed.
    widths: Option<Vec<usize>>,
}

impl Table {
    fn new(schema: &Schema) -> Self {
        let names = schema.fields().iter().map(|field| printable(field.name())).collect();
        let is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        Self { names, is_number, held: Vec::new(), widths: None }
    }

    /// The rows that are held as text, the first time below their heading.
    fn take(&mut self) -> String {
        let mut rows = std::mem::take(&mut self.held);
        if self.widths.is_none() {
            rows.insert(0, self.names.clone());
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
            self.widths = Some((0..self.names.len()).map(|column| width(column).unwrap_or(0)).collect());
        }
        let widths = self.widths.as_deref().unwrap_or_default();
        let mut text = String::new();
        for row in &rows {
            let begin = text.len();
            for ((cell, &width), is_number) in row.iter().zip(widths).zip(&self.is_number) {
                let _ = if *is_number {
                    write!(text, "{cell:>width$}  ")
                } else {
                    write!(text, "{cell:<width$}  ")
                };
            }
            text.truncate(begin + text[begin..].trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => error.into(),
            ArrowError::ExternalError(error) => match error.downcast::<std::io::Error>() {
                Ok(error) => (*error).into(),
                Err(error) => Self::new(Kind::Failed, error.to_string()),
            },
            error => Self::new(Kind::Failed, error.to_string()),
        }
    }
}
