//! Images: what a machine begins from. A kernel, what that begins with, and a root file system, in a directory that is never written to again.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

use crate::names::Name;

const BUILD: &str = include_str!("image/build.sh");

/// All images of a user.
#[derive(Clone, Debug)]
pub struct Images {
    directory: PathBuf,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// What it is called.
    pub name: Name,
    /// Where it is.
    pub directory: PathBuf,
    /// Of which version its kernel is.
    pub kernel_version: String,
    /// How large its root file system is; 0: it is a program alone, and has none.
    pub root_bytes: u64,
}

/// Why there is no such image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// Nothing has this name.
    #[error("there is no image `{0}` in {1}: `comb vm create {0} --from-debian` makes one")]
    None(Name, PathBuf),
    /// Something has.
    #[error("there is an image `{0}` already")]
    Exists(Name),
    /// A file of it is missing or cannot be used.
    #[error("the image in {0} is broken: {1}")]
    Broken(PathBuf, String),
    /// It could not be made.
    #[error("{0}")]
    Build(String),
    /// The host.
    #[error("{0}: {1}")]
    Host(PathBuf, io::Error),
}

/// What an image is made of.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// The agent's program.
    pub agent: PathBuf,
    /// A kernel's package; none: Debian's, for clouds.
    pub kernel: Option<PathBuf>,
    /// Packages of a small Debian; none: busybox alone.
    pub packages: Vec<String>,
    /// What a directory contains, at the root.
    pub with: Option<PathBuf>,
    /// Programs of the host's, with the libraries that they are linked with: by the same path as here.
    pub brings: Vec<PathBuf>,
    /// How much is to be free in its root, in megabytes.
    pub room_mb: u32,
    /// This program alone, with neither an agent nor a root.
    pub program: Option<PathBuf>,
}

impl Images {
    /// Those in a directory, which is made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where the one with this name is, if it is there.
    pub(crate) fn place(&self, name: &Name) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// All, by name.
    pub fn list(&self) -> Vec<Image> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Name>().ok());
        let mut images: Vec<Image> = names.filter_map(|name| self.open(&name).ok()).collect();
        images.sort_by(|one, other| one.name.cmp(&other.name));
        images
    }

    /// The one with this name.
    pub fn open(&self, name: &Name) -> Result<Image, ImageError> {
        let directory = self.directory.join(name.as_str());
        if !directory.exists() {
            return Err(ImageError::None(name.clone(), self.directory.clone()));
        }
        let broken = |file: &str, why: &dyn std::fmt::Display| {
            ImageError::Broken(directory.clone(), format!("{file}: {why}"))
        };
        let version =
            std::fs::read_to_string(directory.join("version")).map_err(|error| broken("version", &error))?;
        let mut sizes = [0; 3];
        for (size, file) in sizes.iter_mut().zip(["root", "kernel", "initrd"]) {
            let found = std::fs::metadata(directory.join(file)).map_err(|error| broken(file, &error))?;
            *size = found.len();
            if *size == 0 && file != "root" {
                return Err(broken(file, &"it is empty"));
            }
        }
        if sizes[0] % (2 << 20) != 0 {
            return Err(broken("root", &"its size is no multiple of 2 MB"));
        }
        let kernel_version = version.trim().to_owned();
        Ok(Image { name: name.clone(), directory, kernel_version, root_bytes: sizes[0] })
    }

    /// Makes one. `says` hears what is done.
    pub fn build(
        &self,
        name: &Name,
        recipe: &Recipe,
        mut says: impl FnMut(&str),
    ) -> Result<Image, ImageError> {
        let (place, new) = (self.directory.join(name.as_str()), self.directory.join(format!(".{name}.new")));
        if place.exists() {
            return Err(ImageError::Exists(name.clone()));
        }
        let host = |path: &Path| {
            let path = path.to_owned();
            move |error| ImageError::Host(path, error)
        };
        if let Some(program) = &recipe.program {
            let bytes = std::fs::read(program).map_err(host(program))?;
            can_be_alone(&bytes).map_err(|why| ImageError::Build(format!("{}: {why}", program.display())))?;
        }
        // Half an image that somebody has left behind.
        let _ = std::fs::remove_dir_all(&new);
        std::fs::create_dir_all(&new).map_err(host(&new))?;
        let made = run_build(&new, recipe, &mut says);
        if let Err(why) = made {
            let _ = std::fs::remove_dir_all(&new);
            return Err(why);
        }
        std::fs::rename(&new, &place).map_err(host(&place))?;
        self.open(name)
    }

    /// Removes one. Machines that run from it have what they need.
    pub fn remove(&self, name: &Name) -> Result<(), ImageError> {
        let image = self.directory.join(name.as_str());
        if !image.exists() {
            return Err(ImageError::None(name.clone(), self.directory.clone()));
        }
        std::fs::remove_dir_all(&image).map_err(|error| ImageError::Host(image, error))
    }
}

fn run_build(directory: &Path, recipe: &Recipe, says: &mut dyn FnMut(&str)) -> Result<(), ImageError> {
    let fails = |error: io::Error| ImageError::Build(format!("sh: {error}"));
    let mut command = Command::new("sh");
    command.args(["-c", BUILD]).env("OUT", directory).env("AGENT", &recipe.agent);
    command.env("PACKAGES", recipe.packages.join(" ")).env("ROOM", recipe.room_mb.to_string());
    match &recipe.kernel {
        Some(kernel) => command.env("KERNEL", std::path::absolute(kernel).map_err(fails)?),
        None => command.env_remove("KERNEL"),
    };
    match &recipe.program {
        Some(program) => command.env("PROGRAM", std::path::absolute(program).map_err(fails)?),
        None => command.env_remove("PROGRAM"),
    };
    match &recipe.with {
        Some(with) => command.env("WITH", std::path::absolute(with).map_err(fails)?),
        None => command.env_remove("WITH"),
    };
    let mut brings = OsString::new();
    for program in &recipe.brings {
        brings.push(std::path::absolute(program).map_err(fails)?);
        brings.push("\n");
    }
    command.env("BRING", brings);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(fails)?;
    let errors = child.stderr.take().expect("it is piped");
    let errors = std::thread::spawn(move || io::read_to_string(errors).unwrap_or_default());
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok) {
        says(&line);
    }
    let status = child.wait().map_err(fails)?;
    let errors = errors.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    let last = errors.lines().rev().find(|line| !line.is_empty()).unwrap_or("it does not say why");
    Err(ImageError::Build(last.to_owned()))
}

/// Whether a program can be all that runs in a machine; if not, why.
fn can_be_alone(program: &[u8]) -> Result<(), &'static str> {
    /// Of a program in ELF: who is to load it.
    const PT_INTERP: u32 = 3;
    let word = |at: usize| {
        program.get(at..at + 2).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    let long =
        |at: usize| usize::try_from(u64::from_le_bytes(program.get(at..at + 8)?.try_into().ok()?)).ok();
    let headers = || {
        let (first, size, count) = (long(32)?, word(54)?, word(56)?);
        let kind = |number: usize| program.get(first.checked_add(number * size)?..)?.first_chunk::<4>();
        (0..count).map(|number| Some(u32::from_le_bytes(*kind(number)?))).collect::<Option<Vec<_>>>()
    };
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return Err("it is no program for this kind of machine");
    }
    let headers = headers().ok_or("it is no whole program")?;
    let mark = comb_guest::LIBRARY_OS_MARK;
    if !program.windows(mark.len()).any(|part| part == mark) {
        return Err("it is not linked with libcomb_library_os.a: docs/vm.md says how");
    }
    if headers.contains(&PT_INTERP) { Err("it is not static: link it with -static") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_image_says_what_is_broken() {
        let directory = std::env::temp_dir().join(format!("comb-vm-image-{}", std::process::id()));
        let images = Images::at(directory.clone());
        let name: Name = "small".parse().unwrap();
        assert!(images.list().is_empty());
        assert!(images.open(&name).unwrap_err().to_string().contains("comb vm create small"));
        let place = directory.join("small");
        std::fs::create_dir_all(&place).unwrap();
        assert!(images.open(&name).unwrap_err().to_string().contains("version: No such file"));
        for file in ["version", "kernel", "initrd"] {
            std::fs::write(place.join(file), "6.1").unwrap();
        }
        std::fs::write(place.join("root"), [0; 512]).unwrap();
        assert!(images.open(&name).unwrap_err().to_string().contains("no multiple of 2 MB"));
        std::fs::File::create(place.join("root")).unwrap().set_len(16 << 20).unwrap();
        let image = images.open(&name).unwrap();
        assert_eq!((image.kernel_version.as_str(), image.root_bytes), ("6.1", 16 << 20));
        assert_eq!(images.list(), [image]);
        assert!(matches!(images.build(&name, &Recipe::default(), |_| ()), Err(ImageError::Exists(_))));
        images.remove(&name).unwrap();
        assert!(images.list().is_empty());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
