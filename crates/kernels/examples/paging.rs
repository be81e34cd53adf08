//! By hand.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (program, policy) = match words[0] {
        "mp3d" => (comb_kernels::programs::MP3D, comb_kernels::mp3d::policy()),
        _ => (comb_kernels::programs::DATABASE, comb_kernels::database::policy()),
    };
    let since = std::time::Instant::now();
    let ran = comb_kernels::file_kernel::run(
        program,
        &words,
        words[2].as_ref(),
        policy,
        comb_kernels::memory::Resources::alone(comb_kernel::objects::Sizes::default(), 128).unwrap(),
    )
    .unwrap();
    println!(
        "{:?} {} {:?} {:?}",
        ran.end,
        String::from_utf8_lossy(&ran.output[0]),
        ran.counts,
        since.elapsed()
    );
}
