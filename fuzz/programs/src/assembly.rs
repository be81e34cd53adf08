//! A whole program of its pieces, and its layout.

use crate::piece::Piece;
use crate::pieces;
use crate::world::{Calls, World};
use std::fmt::Write;

const PRELUDE: &str = "
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
";

const MIX: &str = "
static uint64_t mix(uint64_t hash, uint64_t value) {
hash = (hash ^ value) * 0x9e3779b97f4a7c15ul;
return hash ^ hash >> 29;
}
";

/// The barrier of the library.
const LIBRARY_BARRIER: &str = "
static pthread_barrier_t barrier;

static void barrier_start(void) {
pthread_barrier_init(&barrier, NULL, THREADS);
}

static void barrier_wait(void) {
pthread_barrier_wait(&barrier);
}
";

/// The same, of a mutex and a condition.
const OWN_BARRIER: &str = "
static pthread_mutex_t barrier_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t barrier_left = PTHREAD_COND_INITIALIZER;
static unsigned barrier_inside, barrier_round;

static void barrier_start(void) {
}

static void barrier_wait(void) {
pthread_mutex_lock(&barrier_mutex);
unsigned round = barrier_round;
if (++barrier_inside == THREADS) {
barrier_inside = 0;
barrier_round++;
pthread_cond_broadcast(&barrier_left);
}
while (barrier_round == round) {
pthread_cond_wait(&barrier_left, &barrier_mutex);
}
pthread_mutex_unlock(&barrier_mutex);
}
";

/// The same, of atomics: for programs that call nothing.
const BARE_BARRIER: &str = "
static _Atomic unsigned barrier_inside, barrier_round;

static void barrier_start(void) {
}

static void barrier_wait(void) {
unsigned round = barrier_round;
if (atomic_fetch_add(&barrier_inside, 1) + 1 == THREADS) {
barrier_inside = 0;
barrier_round++;
}
while (barrier_round == round) {
sched_yield();
}
}
";

fn barrier(world: &mut World) -> &'static str {
    let is_own = world.once_in(3);
    match world.calls {
        Calls::Bare => BARE_BARRIER,
        Calls::Library if is_own => OWN_BARRIER,
        Calls::Library => LIBRARY_BARRIER,
    }
}

/// The C program of this seed: compiled as C11 with `-pthread`, it prints a line for each phase and one at its end, and
/// exits with 0. What it prints depends on nothing but the seed.
pub fn program(seed: u64, calls: Calls) -> String {
    let mut world = World::new(seed, calls);
    let pieces = pieces::choose(&mut world);
    let mut text = format!("/* Program {seed}: one outcome, whatever the interleaving. */");
    text += PRELUDE;
    let _ = write!(text, "\nenum {{ THREADS = {}, PHASES = {} }};\n{MIX}", world.threads, world.phases);
    text += barrier(&mut world);
    text += "\nstatic _Atomic uint64_t sums[PHASES + 1];\n";
    for piece in &pieces {
        let _ = write!(text, "\n{}", piece.globals);
    }
    text += &thread(&world, &pieces);
    text += &main_function(&pieces);
    laid_out(&text)
}

/// Each thread goes through the phases, and adds to the sum of each what it has found in it.
fn thread(world: &World, pieces: &[Piece]) -> String {
    let mut text =
        "\nstatic void *work(void *argument) {\nunsigned self = *(unsigned *)argument;\n".to_owned();
    text += "uint64_t hash = self + 1;\n";
    for piece in pieces {
        text += &piece.thread;
    }
    text += "barrier_wait();\n";
    for phase in 0..world.phases as usize {
        let _ = writeln!(text, "\n/* Phase {phase}. */");
        for statements in
            pieces.iter().map(|piece| &piece.phases[phase]).filter(|statements| !statements.is_empty())
        {
            let _ = write!(text, "{{\n{statements}}}\n");
        }
        let _ = write!(text, "atomic_fetch_add(&sums[{phase}], hash);\nbarrier_wait();\n");
    }
    // The last barrier: nobody's stack goes while another looks at it.
    text + "\natomic_fetch_add(&sums[PHASES], mix(hash, sums[PHASES - 1]));\nbarrier_wait();\nreturn NULL;\n}\n"
}

fn main_function(pieces: &[Piece]) -> String {
    let mut text = "
int main(void) {
pthread_t threads[THREADS];
unsigned names[THREADS];
uint64_t hash = 0;
barrier_start();
"
    .to_owned();
    for piece in pieces {
        text += &piece.setup;
    }
    text += "for (unsigned t = 0; t < THREADS; t++) {
names[t] = t;
if (pthread_create(&threads[t], NULL, work, &names[t]) != 0) {
return 1;
}
}
for (unsigned t = 0; t < THREADS; t++) {
pthread_join(threads[t], NULL);
}
for (unsigned phase = 0; phase <= PHASES; phase++) {
printf(\"phase %u: %016lx\\n\", phase, (unsigned long)sums[phase]);
}
";
    for piece in pieces.iter().filter(|piece| !piece.finish.is_empty()) {
        let _ = writeln!(text, "{}printf(\"memory: %016lx\\n\", (unsigned long)hash);", piece.finish);
    }
    text + "return 0;\n}\n"
}

/// Indents by braces. None of them stands in a string or a comment.
fn laid_out(text: &str) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    for line in text.lines().map(str::trim) {
        let closing = line.chars().take_while(|&c| c == '}').count();
        let indent = if line.is_empty() { 0 } else { depth.saturating_sub(closing) * 4 };
        let _ = writeln!(out, "{:indent$}{line}", "");
        let count = |brace| line.matches(brace).count();
        depth = (depth + count('{')).saturating_sub(count('}'));
    }
    out
}
