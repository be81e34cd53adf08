//! `comb version`: which comb this is, and whom it understands.

use std::process::ExitCode;

use clap::Args;
use comb_host::state::STATE_VERSION;
use comb_region::task::DESCRIPTION_VERSION;
use comb_types::Version;
use serde_json::json;

use crate::failure::Outcome;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Show {}

impl Show {
    #[expect(clippy::unused_self, reason = "like all commands")]
    pub(crate) fn run(self, output: Output) -> Outcome {
        let (version, profile, target) =
            (env!("CARGO_PKG_VERSION"), env!("COMB_BUILD_PROFILE"), env!("COMB_BUILD_TARGET"));
        let protocol = Version::CURRENT.0;
        let object = json!({
            "version": version,
            "profile": profile,
            "target": target,
            "protocols": {
                "channels": protocol,
                "membership": comb_membership::wire::VERSION,
                "state": STATE_VERSION,
                "task": DESCRIPTION_VERSION,
            },
        });
        let text = format!(
            "comb {version} ({profile}, {target})\n\
             protocols: channels {protocol}, membership {}, agent's state {STATE_VERSION}, tasks {DESCRIPTION_VERSION}",
            comb_membership::wire::VERSION,
        );
        output.tell(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}
