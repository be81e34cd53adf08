fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a.get(3).map(String::as_str) == Some("--answer") {
        comb_bench::side::answer(&a[2], a[4].as_ref(), a[5].as_ref()).unwrap()
    } else {
        comb_bench::side::ask(&a[2]).unwrap()
    }
}
