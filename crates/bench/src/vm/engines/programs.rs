//! What is run on the host and in guests alike: a compiler, and programs that were compiled by it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::Outcome;
use crate::kernel::compiling;

/// Where they are in a guest, which is below a folder of the host's as well.
const FOLDER: &str = "bench";

const SERVICES: &str = include_str!("services.c");

/// Programs of `apps`.
const APPS: [&str; 3] = ["mp3d", "water", "raytrace"];

/// Of many orders who bought most of what, as decision support asks.
const QUERY: &str = "\
create table parts(id integer primary key, kind integer, price integer);
create table orders(id integer primary key, part integer, buyer integer, count integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert into parts select i, i % 25, i * 7919 % 1000 from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) insert into orders select i, 1 + i * 7919 % 2000, i * 104729 % 500, 1 + i % 9 from n;
select kind, count(*), sum(price * count), avg(price) from orders join parts on parts.id = part group by kind order by 3 desc limit 5;
select buyer, sum(price * count) as spent from orders join parts on parts.id = part where kind < 12 group by buyer having spent > 1000 order by spent desc limit 5;
";

/// Programs as they lie in a folder that becomes a guest's root.
pub(super) struct Programs {
    tree: PathBuf,
    compiler: PathBuf,
    has_database: bool,
}

impl Programs {
    /// Gathers them in a folder that is there.
    pub(super) fn gather(tree: &Path) -> Outcome<Self> {
        let folder = tree.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let named = in_path("gcc").ok_or("gcc is not installed here (apt install gcc libc6-dev)")?;
        let compiler = fs::canonicalize(named)?;
        compiling::write_sources(&folder)?;
        fs::write(folder.join("services.c"), SERVICES)?;
        fs::write(folder.join("query"), QUERY)?;
        for file in compiler_files(&compiler, &folder)? {
            put(tree, &file)?;
        }
        compile(&compiler, &folder, &folder.join("services"), &[PathBuf::from("services.c")], &[])?;
        let apps = apps().ok_or("the programs' folder, apps, is not here: run from the repository")?;
        for app in APPS {
            let common = apps.join("program");
            let sources = [apps.join(app).join(format!("{app}.c")), common.join("program.c")];
            let options = ["-I", common.to_str().ok_or("a folder's name is no text")?, "-pthread", "-lm"];
            compile(&compiler, &folder, &folder.join(app), &sources, &options)?;
        }
        let database = in_path("sqlite3");
        for file in
            database.iter().map(|program| with_libraries(program)).collect::<Outcome<Vec<_>>>()?.concat()
        {
            put(tree, &file)?;
        }
        Ok(Self { tree: tree.to_owned(), compiler, has_database: database.is_some() })
    }

    /// The lines of a shell that are a workload; none where its program is not here. They begin in the folder.
    pub(super) fn script(&self, workload: super::Workload) -> Option<String> {
        use super::Workload;
        let files = compiling::FILES - 1;
        let cc = self.compiler.display();
        match workload {
            Workload::Pmake => Some(format!(
                "busybox seq 0 {files} | busybox xargs -P 2 -n 1 -I @ {cc} -O2 -c part@.c && {cc} -static -o program main.c part*.o && rm program part*.o"
            )),
            Workload::Engineering => Some(
                "simulate() { for i in 1 2 3 4; do ./$1 -s paper > /dev/null || exit; done; }; simulate mp3d & simulate water; wait $!".into(),
            ),
            Workload::Raytrace => Some("for i in 1 2 3; do ./raytrace -s paper > /dev/null || exit; done".into()),
            Workload::Database => {
                self.has_database.then(|| "for i in 1 2 3; do sqlite3 < query > /dev/null || exit; done".into())
            }
        }
    }

    /// The folder on the host.
    pub(super) fn of_host(&self) -> PathBuf {
        self.tree.join(FOLDER)
    }

    /// The folder in a guest.
    pub(super) fn of_guest() -> PathBuf {
        Path::new("/").join(FOLDER)
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn apps() -> Option<PathBuf> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
    let found =
        [PathBuf::from("apps"), built_from].into_iter().find(|folder| folder.join("Makefile").is_file());
    fs::canonicalize(found?).ok()
}

/// What a program says, of whom that is all that is wanted.
fn said(program: &Path, arguments: &[&str], at: &Path) -> Outcome<String> {
    let output = Command::new(program).args(arguments).current_dir(at).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {}: {why}", program.display(), arguments.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn compile(compiler: &Path, at: &Path, program: &Path, sources: &[PathBuf], options: &[&str]) -> Outcome<()> {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-static", "-D_GNU_SOURCE", "-o"]).arg(program).args(sources).args(options);
    let output = command.current_dir(at).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into())
}

/// All files that a compilation of these sources takes, with a static program as its end.
fn compiler_files(compiler: &Path, sources: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = with_libraries(compiler)?;
    for program in ["cc1", "as", "ld", "collect2"] {
        let named = said(compiler, &[&format!("-print-prog-name={program}")], sources)?;
        let named = PathBuf::from(named.trim());
        let place = if named.is_absolute() { Some(named) } else { in_path(program) };
        files.extend(with_libraries(&place.ok_or(format!("{program} is not here"))?)?);
    }
    let linked =
        ["crt1.o", "crti.o", "crtbeginT.o", "crtend.o", "crtn.o", "libc.a", "libgcc.a", "libgcc_eh.a"];
    for name in linked.into_iter().chain(["liblto_plugin.so"]) {
        let named = said(compiler, &[&format!("-print-file-name={name}")], sources)?;
        files.push(PathBuf::from(named.trim()));
    }
    // What is included, in the words of a makefile.
    let parts: Vec<String> = (0..compiling::FILES).map(|part| format!("part{part}.c")).collect();
    // Some is included only where it is optimized.
    let words: Vec<&str> = ["-O2", "-M"].into_iter().chain(parts.iter().map(String::as_str)).collect();
    let included = said(compiler, &words, sources)?;
    files.extend(included.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    Ok(files.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
}

/// A program, and what it is linked with.
fn with_libraries(program: &Path) -> Outcome<Vec<PathBuf>> {
    let listed = Command::new("ldd").arg(program).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    Ok([program.to_owned()].into_iter().chain(libraries).collect())
}

/// Copies a file to where it is, below another root.
fn put(tree: &Path, file: &Path) -> Outcome<()> {
    let mut to = tree.to_owned();
    for part in file.components() {
        match part {
            Component::Normal(name) => to.push(name),
            Component::ParentDir => {
                to.pop();
            }
            _ => {}
        }
    }
    if !to.exists() {
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        fs::copy(file, &to).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
