//! A query, from its words to its rows.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures_util::StreamExt;

use crate::failure::{Failure, Kind};
use crate::rows::Rows;
use crate::tables::Tables;

/// What is asked, of which tables, and how it is to be said.
pub(crate) struct Question {
    pub(crate) tables: PathBuf,
    pub(crate) text: String,
    pub(crate) is_json: bool,
    /// How much a query may hold [default: half of what is free]
    pub(crate) memory_bytes: Option<usize>,
}

/// What the catalogue of tables and its only part are called where SQL wants them to have names.
const CATALOG: &str = "comb";
const SCHEMA: &str = "trace";

/// As many of those that hold most are named if memory does not suffice.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).expect("more than none");

/// Has the tables, and answers.
pub(crate) struct Engine {
    context: SessionContext,
    runtime: Arc<RuntimeEnv>,
}

impl Engine {
    pub(crate) fn new(question: &Question) -> Result<Self, Failure> {
        let memory_bytes = question.memory_bytes.unwrap_or_else(half_of_free_memory);
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory_bytes), NAMED_CONSUMERS);
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
        let config = SessionConfig::new()
            .with_information_schema(true)
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, SCHEMA);
        let context = SessionContext::new_with_config_rt(config, Arc::clone(&runtime));
        let catalog = MemoryCatalogProvider::new();
        let folder = std::path::absolute(&question.tables)?;
        catalog.register_schema(SCHEMA, Arc::new(Tables { folder }))?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        Ok(Self { context, runtime })
    }

    /// Prints all rows.
    pub(crate) async fn answer(&self, question: &Question) -> Result<(), Failure> {
        let plan = self.context.state().create_logical_plan(&question.text).await?;
        let may = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        if may.verify_plan(&plan).is_err() {
            return Err(Failure::new(
                Kind::Refused,
                "tables are only read: SELECT, WITH, DESCRIBE, SHOW and EXPLAIN are answered",
            ));
        }
        let is_plan = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let frame = self.context.execute_logical_plan(plan).await?;
        let mut rows = Rows::new(frame.schema(), question.is_json, is_plan);
        let mut batches = frame.execute_stream().await?;
        while let Some(batch) = batches.next().await {
            rows.add(&batch?)?;
        }
        rows.finish()
    }

    pub(crate) fn temporary_files(&self) -> TemporaryFiles {
        TemporaryFiles(Arc::clone(&self.runtime))
    }
}

/// What did not fit in memory. It goes with the query, if that ends by itself.
pub(crate) struct TemporaryFiles(Arc<RuntimeEnv>);

impl TemporaryFiles {
    /// The query cannot go on.
    pub(crate) fn remove(&self) {
        for folder in self.0.disk_manager.temp_dir_paths() {
            // If we cannot, whoever clears the system's folder of temporary files will.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The other half is for what the engine does not count, and for others.
fn half_of_free_memory() -> usize {
    const WITHOUT_A_WORD_OF_IT: usize = 1 << 30;
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes: Option<usize> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kilobytes.map_or(WITHOUT_A_WORD_OF_IT, |kilobytes| kilobytes * 1024 / 2)
}
