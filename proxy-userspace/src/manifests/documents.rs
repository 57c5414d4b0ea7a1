//! The documents of a YAML stream, without parsing it: one that is broken must not take the others
//! along.

/// The documents of a YAML stream. A line that starts with three hyphens ends a document wherever
/// it stands, even in a scalar, so no parser is needed to find it.
pub(super) fn documents(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut end = 0;
        // A marker opens this document when nothing but comments and directives precede it.
        let mut is_open = false;
        for line in text.split_inclusive('\n') {
            if is_marker(line) && is_open {
                rest = text.get(end..);
                return text.get(..end);
            }
            let content = line.trim();
            is_open |= !(content.is_empty() || content.starts_with(['#', '%']));
            end += line.len();
        }
        rest = None;
        Some(text)
    })
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_part_documents_and_open_the_first() {
        let table: [(&str, &[&str]); 6] = [
            ("a", &["a"]),
            ("a\n---\nb\n", &["a\n", "---\nb\n"]),
            ("# c\n%YAML 1.2\n---\na\n", &["# c\n%YAML 1.2\n---\na\n"]),
            ("---\n---\na", &["---\n", "---\na"]),
            ("--- a\n---- b\n", &["--- a\n---- b\n"]),
            ("a: |\n  x\n  ---\n---", &["a: |\n  x\n  ---\n", "---"]),
        ];
        for (text, expected) in table {
            assert_eq!(expected, documents(text).collect::<Vec<_>>(), "{text}");
        }
    }
}
