//! The tables as the engine finds them, by their names.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use comb_trace::store::{Kind, TABLES, TableSchema, checked_files};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use url::Url;

/// All tables of a folder. Only what a query names is looked at, and all of that, before the first row is read: the library that reads Parquet
/// may give wrong rows, or panic, if a file is damaged.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Absolute.
    pub(crate) folder: PathBuf,
}

impl Tables {
    fn open(&self, table: &TableSchema) -> Result<ListingTable> {
        let files = checked_files(&self.folder, table.name).map_err(external)?;
        let urls = files.iter().map(|file| {
            let url =
                Url::from_file_path(file).map_err(|()| external(format!("{}: no path", file.display())))?;
            // By its address, for in a path an asterisk would have a meaning.
            ListingTableUrl::try_new(url, None)
        });
        let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
        let config = ListingTableConfig::new_with_multi_paths(urls.collect::<Result<_>>()?)
            .with_listing_options(options)
            .with_schema(Arc::new(schema(table)));
        ListingTable::try_new(config)
    }
}

fn external(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> DataFusionError {
    DataFusionError::External(error.into())
}

fn schema(table: &TableSchema) -> Schema {
    let field = |(name, kind): &(&str, Kind)| {
        let of = match kind {
            Kind::Small => DataType::Int32,
            Kind::Large => DataType::Int64,
            Kind::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
            Kind::Text => DataType::Utf8View,
        };
        Field::new(*name, of, false)
    };
    Schema::new(table.columns.iter().map(field).collect::<Vec<_>>())
}

fn named(name: &str) -> Option<&'static TableSchema> {
    TABLES.iter().find(|table| table.name == name)
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|table| table.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = named(name) else { return Ok(None) };
        Ok(Some(Arc::new(self.open(table)?)))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(named(name).map(|_| TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        named(name).is_some()
    }
}
