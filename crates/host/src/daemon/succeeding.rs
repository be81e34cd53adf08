//! The agent makes room for another: a newer program, in the same process. Its cells live on, and it takes them over.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use comb_types::Version;

use super::*;
use crate::held;

/// A program says at once what it is; meanwhile nobody is answered.
const VERSION_LIMIT: Duration = Duration::from_secs(2);

impl Daemon {
    /// Whether that could be the next agent: it is asked which comb it is, and whom it understands.
    pub(super) fn may_succeed(program: &Path) -> Result<(), String> {
        let why_not = |why: &str| format!("{} cannot be the next agent: {why}", program.display());
        if !program.is_absolute() {
            return Err(why_not("its path has to be whole"));
        }
        let versions = ask_for_versions(program).map_err(|why| why_not(&why))?;
        let number =
            |name: &str| versions["protocols"][name].as_u64().and_then(|number| u8::try_from(number).ok());
        let (Some(channels), Some(state)) = (number("channels"), number("state")) else {
            return Err(why_not("it does not say which comb it is"));
        };
        Version::CURRENT.accept(Version(channels)).map_err(|error| why_not(&error.to_string()))?;
        if u32::from(state) != STATE_VERSION {
            return Err(why_not(&format!(
                "it reads what version {state} writes down, and this one is {STATE_VERSION}"
            )));
        }
        Ok(())
    }

    /// Becomes that program. Returns only if that fails; then everything is as it was.
    pub(super) fn succeed(&mut self, program: &Path) {
        let pid = std::process::id();
        self.events
            .note(What::AgentLeft { pid }, format_args!("process {pid} becomes {}", program.display()));
        // Children of this process that the next program would know nothing of.
        self.waxing.end();
        if let Some(policy) = self.waxing.process() {
            process::wait_for_end(policy, END_LIMIT);
            let _ = self.waxing.take_end();
        }
        if let Some(dashboard) = &mut self.dashboard {
            dashboard.kill();
        }
        self.write_state();
        let kept = held::pass_on();
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "comb".into());
        // Everything else is closed with this program: sockets, the lock, what is watched.
        let error =
            std::process::Command::new(program).arg0(name).args(arguments).env(held::VARIABLE, &kept).exec();
        held::take_back(&kept);
        self.events.note(What::Note, format_args!("{} cannot be the next agent: {error}", program.display()));
    }
}

/// What `comb version` says, from a program that may be anything.
fn ask_for_versions(program: &Path) -> Result<serde_json::Value, String> {
    let mut asked = std::process::Command::new(program);
    asked.args(["version", "-o", "json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = asked.spawn().map_err(|error| error.to_string())?;
    let ended =
        process::open_number(asked.id()).is_some_and(|asked| process::wait_for_end(&asked, VERSION_LIMIT));
    if !ended {
        let _ = asked.kill();
    }
    let said = asked.wait_with_output().map_err(|error| error.to_string())?;
    let read = serde_json::from_slice(&said.stdout).ok().filter(|_| ended && said.status.success());
    read.ok_or_else(|| "it does not say which comb it is".to_owned())
}
