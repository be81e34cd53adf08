//! Memory that machines have in common, as it is asked for.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use comb_host::RuntimeDirectory;
use comb_vm::names::Name;
use comb_vm::segment::{Segment, SegmentError, Segments};
use serde::{Deserialize, Serialize};

use crate::run::memory;

/// `NAME`, or `NAME=SIZE`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Common {
    name: String,
    bytes: Option<u64>,
}

impl FromStr for Common {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, size) = text.split_once('=').map_or((text, None), |(name, size)| (name, Some(size)));
        let name: Name = name.parse().map_err(|error: comb_vm::names::NameError| error.to_string())?;
        if comb_guest::segment::mark(name.as_str()).is_none() {
            return Err(SegmentError::Name(name).to_string());
        }
        Ok(Self { name: name.to_string(), bytes: size.map(memory).transpose()? })
    }
}

impl Common {
    /// Holds it.
    pub(super) fn hold(&self, directory: &RuntimeDirectory) -> Result<Arc<Segment>, crate::failure::Failure> {
        Ok(Arc::new(segments(directory).hold(&self.name.parse()?, self.bytes)?))
    }
}

/// Where segments are: in the host's memory, and those of each agent apart from others'.
fn segments(directory: &RuntimeDirectory) -> Segments {
    let place = directory.path().to_string_lossy().replace('/', "-");
    Segments::at(PathBuf::from(format!("/dev/shm/comb-segments{place}")))
}
