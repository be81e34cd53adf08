//! What may be said of a sample whose variance could be infinite. (Thesis §9.7)
//!
//! | file | the one idea in it |
//! |---|---|
//! | [`distributions`] | the distributions' functions, and samples drawn from them |

pub mod distributions;
