#![doc = include_str!("../README.md")]

mod lists;
mod note;
mod objects;
mod resolve;

pub use lists::{ListError, Lists};
pub use note::{Access, Mixture, first_access, mixtures};
pub use objects::ObjectError;
pub use resolve::{Uncovered, lack, uncovered};
