//! Text in a page: whatever it is of, it stays text.

use std::fmt::{self, Write};

/// Text with no sign in it that HTML would heed, be it between tags or in an attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // No page may have them, not even by number.
                letter if letter.is_control() && letter != '\n' && letter != '\t' => {
                    f.write_char('\u{fffd}')?;
                }
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// The same, where what is between two backticks is what one types.
pub(super) struct Prose<'a>(pub(super) &'a str);

impl fmt::Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((before, (typed, after))) =
            rest.split_once('`').and_then(|(before, more)| Some((before, more.split_once('`')?)))
        {
            write!(f, "{}<code>{}</code>", Escaped(before), Escaped(typed))?;
            rest = after;
        }
        Escaped(rest).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let text = Escaped("<script>alert(\"1\") & 'x'</script>\u{0}").to_string();
        assert_eq!(text, "&lt;script&gt;alert(&quot;1&quot;) &amp; &#39;x&#39;&lt;/script&gt;\u{fffd}");
    }

    #[test]
    fn what_one_types_is_code() {
        assert_eq!(Prose("see `a <b>`, or `c").to_string(), "see <code>a &lt;b&gt;</code>, or `c");
        assert_eq!(Prose("`a``b`").to_string(), "<code>a</code><code>b</code>");
    }
}
