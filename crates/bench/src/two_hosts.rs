//! Two hosts that are network namespaces with a cable between, each with one core: what a program gains by the second.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use comb_region::launch::{Host, Launch};
use comb_region::{Array, Task, Terms};

use crate::memory_side::say;
use crate::namespaces::{ADDRESSES, CABLE, Namespace};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Sides of the matrices.
pub(crate) const PRODUCTS: [usize; 4] = [128, 512, 1024, 2560];
/// Sides of the grids.
pub(crate) const STENCILS: [usize; 4] = [256, 1024, 2048, 4096];
const BLOCK: usize = 64;
/// Of a few runs the best: others of the machine want its cores, too.
const RUNS: usize = 2;

/// The hosts. They go with the last process in them.
pub(crate) struct TwoHosts {
    ends: [Namespace; 2],
}

impl TwoHosts {
    /// `Err`: this machine does not let us, and why.
    pub(crate) fn begin() -> Result<Self, String> {
        let ends = [Namespace::make()?, Namespace::make()?];
        let other = ends[1].path();
        ends[0].ip(&["link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", &other])?;
        for (end, address) in ends.iter().zip(ADDRESSES) {
            end.ip(&["address", "add", &format!("{address}/24"), "dev", CABLE])?;
            end.ip(&["link", "set", CABLE, "up"])?;
        }
        Ok(Self { ends })
    }

    /// So many of them, as `comb run --hosts` is told of them.
    pub(crate) fn names(&self, count: usize) -> Vec<String> {
        let hosts = self.ends.iter().zip(ADDRESSES).take(count);
        hosts.map(|(end, address)| format!("{}={address}", Self::name(end))).collect()
    }

    /// A script that runs a command on the host that it is told first, bound to a core of that host's own. [`shell_command`] runs it.
    pub(crate) fn shell_with_a_core_each(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cases = self.ends.iter().enumerate().map(|(index, end)| {
            let (core, path) = (index % cores, end.path());
            format!("{}) exec taskset -c {core} nsenter --net={path} \"$@\" ;;\n", Self::name(end))
        });
        format!("host=$1\nshift\ncase $host in\n{}esac\n", cases.collect::<String>())
    }

    /// A host is called as the descriptor of its namespace.
    fn name(end: &Namespace) -> String {
        end.path().rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// The same on so many of them, a component each.
    pub(crate) fn on(&self, launch: Launch, count: usize) -> Launch {
        let path = self.ends[0].path();
        let descriptors = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let host = |(end, address): (&Namespace, &str)| Host {
            name: Self::name(end),
            address: address.parse::<IpAddr>().ok(),
            count: None,
        };
        launch
            .hosts(self.ends.iter().zip(ADDRESSES).take(count).map(host))
            .shell(&format!("nsenter --net={descriptors}/{{host}}"))
    }
}

/// For `comb run --shell`, by a script of [`TwoHosts::shell_with_a_core_each`].
pub(crate) fn shell_command(script: &std::path::Path) -> String {
    format!("sh {} {{host}}", script.display())
}

/// Whether components of this task are on other hosts: what is one machine's must not put them on one core.
pub(crate) fn are_several() -> Outcome<bool> {
    let Ok(description) = comb_region::task::Description::from_environment() else { return Ok(false) };
    let count = u32::try_from(description.components.len())?;
    Ok((0..count).any(|rank| !description.is_here(rank)))
}

/// This process has one core, each component another, as on hosts of one core.
pub(crate) fn keep_to_one_core() -> Outcome<()> {
    let description = comb_region::task::Description::from_environment()?;
    let cores = std::thread::available_parallelism()?.get();
    let mut set = rustix::thread::CpuSet::new();
    set.set(description.rank as usize % cores);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// All products and stencils, by all components.
pub(crate) fn run(task: &Task) -> Outcome<()> {
    for size in PRODUCTS {
        let took = best(size, || product(task, size))?;
        say(task, 0, &format!("product {size}"), "us", took);
    }
    for size in STENCILS {
        let took = best(size, || stencil(task, size))?;
        say(task, 0, &format!("stencil {size}"), "us", took);
    }
    Ok(())
}

fn best(size: usize, run: impl Fn() -> Outcome<f64>) -> Outcome<f64> {
    // What takes long is disturbed alike.
    let runs = if size < 2048 { RUNS } else { 1 };
    (0..runs).map(|_| run()).try_fold(f64::INFINITY, |least, took| Ok(least.min(took?)))
}

/// The rows of this component, in whole blocks.
fn rows(task: &Task, size: usize, of: usize) -> Range<usize> {
    let blocks = size / of;
    let at = |rank: u32| blocks * rank as usize / task.count() as usize * of;
    at(task.rank())..at(task.rank() + 1)
}

fn each(took: Duration, times: usize) -> f64 {
    took.as_secs_f64() * 1e6 / times as f64
}

/// Blocked matrix products, each with the result of the one before: what the others have made has to be fetched every time.
fn product(task: &Task, size: usize) -> Outcome<f64> {
    const TIMES: usize = 2;
    // All of the others' rows is needed: the longest blocks.
    let terms = Terms { block_bytes: 65536, ..Terms::default() };
    let matrix = || Array::<f64>::together(task, size * size, &terms);
    let [constant, mut from, mut to] = [matrix()?, matrix()?, matrix()?];
    let own = rows(task, size, BLOCK);
    for (index, array) in [&constant, &from, &to].into_iter().enumerate() {
        for at in own.start * size..own.end * size {
            array.set(at, ((at * 7 + index) % 11) as f64 / (6 * size) as f64);
        }
    }
    task.barrier();
    let others = [0..own.start, own.end..size];
    let started = Instant::now();
    for _ in 0..TIMES {
        // What is elsewhere comes while what is here is made use of.
        for rows in others.iter().filter(|rows| !rows.is_empty()) {
            from.prefetch(rows.start * size..rows.end * size, false);
        }
        for (index, terms) in [own.clone()].iter().chain(&others).enumerate() {
            multiply(size, own.clone(), terms.clone(), [&constant, &from, &to], index == 0);
        }
        task.barrier();
        std::mem::swap(&mut from, &mut to);
    }
    Ok(each(started.elapsed(), TIMES))
}

#[expect(unsafe_code, reason = "rows of shared memory as slices")]
fn multiply(
    size: usize,
    own: Range<usize>,
    terms: Range<usize>,
    [one, other, to]: [&Array<f64>; 3],
    is_first: bool,
) {
    // SAFETY: rows of an array of `size` rows; between two barriers nobody stores to `one` and `other`, and nobody else touches these rows of `to`.
    let row = |array: &Array<f64>, row: usize| unsafe {
        std::slice::from_raw_parts(array.as_ptr().add(row * size).cast_const(), size)
    };
    let first = terms.start;
    // Block by block, so that what is multiplied with is in the cache.
    let blocks = |range: Range<usize>| {
        let end = range.end;
        range.step_by(BLOCK).map(move |begin| begin..(begin + BLOCK).min(end))
    };
    for (own, terms) in
        blocks(own).flat_map(|own| blocks(terms.clone()).map(move |terms| (own.clone(), terms)))
    {
        for i in own {
            // SAFETY: as above.
            let result = unsafe { std::slice::from_raw_parts_mut(to.as_ptr().add(i * size), size) };
            if is_first && terms.start == first {
                result.fill(0.0);
            }
            let factors = row(one, i);
            for k in terms.clone() {
                for (result, &value) in result.iter_mut().zip(row(other, k)) {
                    *result += factors[k] * value;
                }
            }
        }
    }
}

/// Sweeps over a square: each needs a row from each neighbour.
fn stencil(task: &Task, size: usize) -> Outcome<f64> {
    let times = (100_000_000 / (size * size)).clamp(10, 200);
    // A row is needed of each neighbour.
    let block_bytes = u32::try_from(size * 8)?.clamp(4096, 65536);
    let terms = Terms { block_bytes, ..Terms::default() };
    let grid = || Array::<f64>::together(task, size * size, &terms);
    let [mut from, mut to] = [grid()?, grid()?];
    let own = rows(task, size, 1);
    for array in [&from, &to] {
        for at in own.start * size..own.end * size {
            array.set(at, (at % 13) as f64);
        }
    }
    task.barrier();
    let inner = own.start.max(1)..own.end.min(size - 1);
    let started = Instant::now();
    for _ in 0..times {
        sweep(size, inner.clone(), &from, &to);
        task.barrier();
        std::mem::swap(&mut from, &mut to);
    }
    Ok(each(started.elapsed(), times))
}

#[expect(unsafe_code, reason = "rows of shared memory as slices")]
fn sweep(size: usize, rows: Range<usize>, from: &Array<f64>, to: &Array<f64>) {
    for i in rows {
        // SAFETY: as in `multiply`.
        let [above, here, below] = [i - 1, i, i + 1].map(|row| unsafe {
            std::slice::from_raw_parts(from.as_ptr().add(row * size).cast_const(), size)
        });
        // SAFETY: as in `multiply`.
        let result = unsafe { std::slice::from_raw_parts_mut(to.as_ptr().add(i * size), size) };
        for k in 1..size - 1 {
            let around = above[k] + below[k] + here[k - 1] + here[k + 1];
            let value = here[k];
            // What is above 0.3 grows, what is below falls, and both spread.
            result[k] = value + 0.1 * (around - 4.0 * value) + 0.05 * (value * (1.0 - value) * (value - 0.3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it is not said, the script is not told which host it runs for.
    #[test]
    fn the_shell_is_told_of_its_host() {
        let words = shell_command(std::path::Path::new("/tmp/script"));
        assert_eq!(words.split(' ').collect::<Vec<_>>(), ["sh", "/tmp/script", "{host}"]);
    }
}
