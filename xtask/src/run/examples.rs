//! The bundled manifests, and the one change that is made to them.

/// The node.
pub(super) const NODE: &str = include_str!("../../../deploy/examples/node.yaml");
/// The Service.
pub(super) const SERVICE: &str = include_str!("../../../deploy/examples/web.yaml");
/// Its endpoints, a slice for each family.
pub(super) const ENDPOINTS: &str = include_str!("../../../deploy/examples/web-endpoints.yaml");

/// The slices without one pod: the items of lists that name it are left out.
pub(super) fn without(slices: &str, pod: &str) -> String {
    let mark = format!("name: {pod},");
    let mut kept = String::new();
    let mut item = String::new();
    for line in slices.split_inclusive('\n') {
        // An item ends where the next one begins, or anything less indented.
        if line.starts_with("  - ") || !line.starts_with("  ") {
            take_unless(&mut kept, &mut item, &mark);
        }
        item.push_str(line);
    }
    take_unless(&mut kept, &mut item, &mark);
    kept
}

fn take_unless(kept: &mut String, item: &mut String, mark: &str) {
    if !item.contains(mark) {
        kept.push_str(item);
    }
    item.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pod_is_left_out_of_both_slices() {
        let text = without(ENDPOINTS, "web-4");
        assert_eq!(2, ENDPOINTS.matches("web-4,").count());
        assert!(!text.contains("web-4,"));
        assert!(!text.contains("10.244.1.14"));
        assert!(!text.contains("fd00:10:244:1::e"));
        assert_eq!(ENDPOINTS.lines().count() - 8, text.lines().count());
        assert_eq!(2, text.matches("kind: EndpointSlice").count());
    }

    #[test]
    fn another_pod_changes_nothing() {
        assert_eq!(ENDPOINTS, without(ENDPOINTS, "web-9"));
    }
}
