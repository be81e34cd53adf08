//! Values as the bytes of a message.

/// What can be said in a message. What is taken was written by another: bytes that are none of these values are nothing.
pub trait Marshal: Sized {
    /// Puts it behind what is there.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes one from the beginning of what is there.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// A value that is all that some bytes say.
pub fn understood<T: Marshal>(mut bytes: &[u8]) -> Option<T> {
    let value = T::take(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

/// The bytes of a value.
pub fn written(value: &impl Marshal) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Marshal for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, i32, i64);

impl Marshal for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Marshal> Marshal for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Marshal> Marshal for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("a message is short").put(to);
        for value in self {
            value.put(to);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let count = u32::take(from)?;
        // No value is less than a byte, but for those that say nothing.
        if count as usize > from.len() {
            return None;
        }
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl Marshal for String {
    fn put(&self, to: &mut Vec<u8>) {
        u32::try_from(self.len()).expect("a message is short").put(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(Vec::take(from)?).ok()
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Marshal),*> Marshal for ($($name,)*) {
            #[expect(non_snake_case, clippy::allow_attributes, reason = "one name for a type and its value")]
            #[allow(unused_variables, reason = "nothing is said with nothing")]
            fn put(&self, to: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.put(to);)*
            }

            #[allow(unused_variables, clippy::unused_unit, clippy::allow_attributes, reason = "as above")]
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(($($name::take(from)?,)*))
            }
        }
    )*};
}

tuples!((A) (A B) (A B C) (A B C D));

impl Marshal for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_nothing_else_is_one() {
        let value = (7_u64, (String::from("a word"), Some(-3_i32)), vec![1_u16, 2, 3], true);
        let bytes = written(&value);
        assert_eq!(understood(&bytes), Some(value));
        for length in 0..bytes.len() {
            assert_eq!(understood::<(u64, (String, Option<i32>), Vec<u16>, bool)>(&bytes[..length]), None);
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(understood::<(u64, (String, Option<i32>), Vec<u16>, bool)>(&longer), None);
        assert_eq!(understood::<bool>(&[2]), None);
        assert_eq!(understood::<Vec<u64>>(&[0xff, 0xff, 0xff, 0xff, 0]), None);
        assert_eq!(understood::<String>(&[1, 0, 0, 0, 0xff]), None);
    }
}
