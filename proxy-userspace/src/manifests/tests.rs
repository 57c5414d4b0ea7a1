use std::fmt::Write as _;

use super::*;
use crate::model::Object;

/// A directory of its own for each test, gone at its end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("kube-lottery-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        std::fs::write(self.0.join(file), text).unwrap();
        self
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.0.join(file)).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn service(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}\n"
    )
}

fn parse_text(file: &str, text: &str) -> Parsed {
    parse(Path::new(file), text, Selectors::default())
}

fn messages(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn keys(changes: &[Change]) -> BTreeSet<String> {
    let name = |change: &Change| match change {
        Change::Set(object) => format!("+{}", object.key()),
        Change::Gone(key) => format!("-{key}"),
        Change::Addresses(_) => "addresses".to_owned(),
    };
    changes.iter().map(name).collect()
}

#[test]
fn documents_lists_and_json_are_all_read() {
    let yaml = format!(
        "# a comment\n---\n{}---\n# nothing here\n---\napiVersion: v1\nkind: List\nitems:\n\
         - {{apiVersion: v1, kind: Node, metadata: {{name: one}}}}\n\
         - {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}, endpoints: []}}\n",
        service("web", "10.96.0.1")
    );
    let parsed = parse_text("a.yaml", &yaml);
    assert_eq!(Vec::<String>::new(), messages(&parsed.problems));
    assert_eq!(3, parsed.objects.len());

    let json = r#"{"apiVersion":"v1","kind":"ServiceList","items":[
        {"metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}]}
        {"apiVersion":"v1","kind":"Node","metadata":{"name":"one"}}"#;
    let parsed = parse_text("a.json", json);
    assert_eq!(Vec::<String>::new(), messages(&parsed.problems));
    assert_eq!(2, parsed.objects.len());
}

#[test]
fn more_documents_than_any_default_limit_are_read() {
    let mut text = String::new();
    for n in 0..3000 {
        write!(text, "---\n{}", service(&format!("s{n}"), "10.96.0.1")).unwrap();
    }
    assert_eq!(3000, parse_text("a.yaml", &text).objects.len());
}

#[test]
fn a_marker_inside_a_scalar_line_is_none() {
    let text = "apiVersion: v1\nkind: Node\nmetadata:\n  name: one\n  annotations:\n    \
                note: |\n      --- not a marker\n      more\n---\napiVersion: v1\nkind: Node\n\
                metadata: {name: two}\n...\n";
    let parsed = parse_text("a.yaml", text);
    assert_eq!(Vec::<String>::new(), messages(&parsed.problems));
    assert_eq!(2, parsed.objects.len());
}

#[test]
fn messages_name_file_document_object_and_field() {
    let text = "\
apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: http}]}
---\napiVersion: v1\nkind: Service\nmetadata: {name: b, namespace: shop}\nspec: {clusterIP: 10.96.0.300}
---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c}
---\napiVersion: v2\nkind: Service\nmetadata: {name: d}
---\n- one\n- two
---\nkind: {{nonsense
---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Node}]\n";
    let parsed = parse_text("dir/bad.yaml", text);
    assert!(parsed.objects.is_empty());
    let expected = [
        "dir/bad.yaml: document 1: Service default/a: spec.ports[0].port: invalid type: string \
         \"http\", expected a number from 1 to 65535",
        "dir/bad.yaml: document 2: Service shop/b: spec.clusterIPs[0]: 10.96.0.300 is not legal; \
         give an IPv4 or IPv6 address",
        "dir/bad.yaml: document 3: Deployment default/c: kind: Deployment is not legal; legal are Service, \
         EndpointSlice, Node, ServiceCIDR and List",
        "dir/bad.yaml: document 4: Service default/d: apiVersion: v2 is not legal; legal is v1",
        "dir/bad.yaml: document 5: must be an object with apiVersion, kind and metadata",
    ];
    let messages = messages(&parsed.problems);
    assert_eq!(expected, messages[..5]);
    assert!(messages[5].starts_with("dir/bad.yaml: document 6: cannot be parsed: "));
    assert_eq!(
        "dir/bad.yaml: document 7: item 1: metadata.name: nothing is not legal; give a name",
        messages[6]
    );
}

#[test]
fn a_bad_object_does_not_stop_the_good_ones() {
    let text = format!("kind: {{{{\n---\n{}", service("web", "10.96.0.1"));
    let parsed = parse_text("a.yaml", &text);
    assert_eq!((1, 1), (parsed.objects.len(), parsed.problems.len()));
}

#[test]
fn only_what_differs_is_a_change() {
    let dir = Dir::new("differs");
    dir.write(
        "a.yaml",
        &format!(
            "{}---\n{}",
            service("a", "10.0.0.1"),
            service("b", "10.0.0.2")
        ),
    )
    .write("b.yml", &service("c", "10.0.0.3"))
    .write("notes.txt", "not a manifest")
    .write(".hidden.yaml", "not: read");
    let mut source = Source::new(dir.0.clone());
    let all = source.read_all();
    assert_eq!(Vec::<String>::new(), messages(&all.problems));
    assert_eq!(3, all.changes.len());
    assert_eq!(0, source.read_all().changes.len());

    dir.write(
        "a.yaml",
        &format!(
            "{}---\n{}",
            service("a", "10.0.0.9"),
            service("b", "10.0.0.2")
        ),
    );
    let changes = source.read(&BTreeSet::from([dir.0.join("a.yaml")])).changes;
    assert_eq!(
        BTreeSet::from(["+Service default/a".to_owned()]),
        keys(&changes)
    );

    dir.remove("b.yml");
    let changes = source.read_all().changes;
    assert_eq!(
        BTreeSet::from(["-Service default/c".to_owned()]),
        keys(&changes)
    );
}

#[test]
fn the_first_file_counts_and_the_second_is_its_heir() {
    let dir = Dir::new("heir");
    dir.write("a.yaml", &service("web", "10.0.0.1"))
        .write("b.yaml", &service("web", "10.0.0.2"));
    let mut source = Source::new(dir.0.clone());
    let update = source.read_all();
    assert_eq!(1, update.changes.len());
    let a = dir.0.join("a.yaml");
    let expected = format!(
        "{}: document 1: Service default/web: declared before in {}, which counts",
        dir.0.join("b.yaml").display(),
        a.display()
    );
    assert_eq!([expected], *messages(&update.problems));

    dir.remove("a.yaml");
    let changes = source.read(&BTreeSet::from([a])).changes;
    match &*changes {
        [Change::Set(Object::Service(web))] => {
            assert_eq!("10.0.0.2", web.cluster_ips[0].to_string());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_becomes_bad_stays_as_it_was() {
    let dir = Dir::new("stays");
    let good = format!(
        "{}---\n{}",
        service("a", "10.0.0.1"),
        service("b", "10.0.0.2")
    );
    dir.write("a.yaml", &good);
    let mut source = Source::new(dir.0.clone());
    source.read_all();

    // Refused by name: `a` stays, `b` is gone.
    dir.write("a.yaml", &service("a", "nowhere"));
    let update = source.read_all();
    assert_eq!(
        BTreeSet::from(["-Service default/b".to_owned()]),
        keys(&update.changes)
    );

    // A document that cannot be parsed may have been any of them.
    dir.write("a.yaml", &good);
    source.read_all();
    dir.write(
        "a.yaml",
        &format!("a: {{{{\n---\n{}", service("c", "10.0.0.3")),
    );
    let update = source.read_all();
    assert_eq!(
        BTreeSet::from(["+Service default/c".to_owned()]),
        keys(&update.changes)
    );

    dir.write("a.yaml", &service("c", "10.0.0.3"));
    let update = source.read_all();
    let expected = ["-Service default/a", "-Service default/b"];
    assert_eq!(
        expected.map(str::to_owned),
        *keys(&update.changes).into_iter().collect::<Vec<_>>()
    );
}

#[test]
fn what_vanished_as_a_whole_takes_nothing_away() {
    let dir = Dir::new("vanished");
    let file = dir.0.join("sub/a.yaml");
    std::fs::create_dir(dir.0.join("sub")).unwrap();
    dir.write("sub/a.yaml", &service("a", "10.0.0.1"));
    for path in [file.clone(), dir.0.join("sub")] {
        let mut source = Source::new(path);
        assert_eq!(1, source.read_all().changes.len());
        std::fs::rename(dir.0.join("sub"), dir.0.join("elsewhere")).unwrap();
        let update = source.read_all();
        assert_eq!((0, 1), (update.changes.len(), update.problems.len()));
        std::fs::rename(dir.0.join("elsewhere"), dir.0.join("sub")).unwrap();
    }
    let mut source = Source::new(file.clone());
    source.read_all();
    std::fs::remove_file(&file).unwrap();
    let update = source.read(&BTreeSet::from([file]));
    assert_eq!((0, 1), (update.changes.len(), update.problems.len()));
}

#[test]
fn files_are_followed() {
    let dir = Dir::new("followed");
    dir.write("a.yaml", &service("a", "10.0.0.1"));
    let (sender, mut updates) = tokio::sync::mpsc::unbounded_channel();
    let follower = follow(Source::new(dir.0.clone()), sender).unwrap();
    assert_eq!(1, updates.blocking_recv().unwrap().changes.len());

    // Replaced by renaming, as editors do.
    dir.write("new", &service("a", "10.0.0.2"));
    std::fs::rename(dir.0.join("new"), dir.0.join("a.yaml")).unwrap();
    let update = updates.blocking_recv().unwrap();
    assert_eq!(
        BTreeSet::from(["+Service default/a".to_owned()]),
        keys(&update.changes)
    );

    dir.write("b.yaml", &service("b", "10.0.0.3"));
    let mut seen = BTreeSet::new();
    while seen.is_empty() {
        seen = keys(&updates.blocking_recv().unwrap().changes);
    }
    assert_eq!(BTreeSet::from(["+Service default/b".to_owned()]), seen);
    drop(follower);
}

/// Changes are told by absolute paths.
#[test]
fn a_relative_path_includes_the_files_that_change_below_it() {
    let here = std::env::current_dir().unwrap();
    for (path, file) in [
        ("manifests", "manifests/a.yaml"),
        ("./manifests", "manifests/a.yaml"),
        ("manifests/", "manifests/a.yaml"),
        ("a.yaml", "a.yaml"),
    ] {
        let source = Source::new(path.into());
        assert!(source.includes(&here.join(file)), "{path}");
    }
}

#[test]
fn hidden_objects_are_as_if_they_were_not_there() {
    let dir = Dir::new("hidden");
    let labelled = service("a", "10.96.0.1").replace(
        "{name: a}",
        "{name: a, labels: {service.kubernetes.io/headless: ''}}",
    );
    dir.write("a.yaml", &labelled);
    let known = |selectors| {
        let mut source = Source::new(dir.0.clone())
            .allow_empty(true)
            .select(selectors);
        let update = source.read_all();
        assert!(update.problems.is_empty());
        update.changes.len()
    };
    assert_eq!(1, known(Selectors::Current));
    assert_eq!(0, known(Selectors::Until134));
}

#[test]
fn service_cidrs_are_objects_of_their_own() {
    let text = "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDRList, items: [\
                {metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/16]}}]}";
    let parsed = parse_text("a.yaml", text);
    assert!(
        parsed.problems.is_empty(),
        "{:?}",
        messages(&parsed.problems)
    );
    let keys: Vec<_> = parsed
        .objects
        .iter()
        .map(|(_, object)| object.key())
        .collect();
    assert_eq!([ObjectKey::ServiceCidr("kubernetes".into())], *keys);
}

#[test]
fn services_for_nobody_are_known_until_they_are_gone() {
    use crate::model::AsideReason;
    let labelled = |label: &str| {
        let labels = format!("name: mesh, labels: {{service.kubernetes.io/{label}}}");
        service("mesh", "10.96.0.9").replace("name: mesh", &labels)
    };
    let dir = Dir::new("asides");
    dir.write("b.yaml", &service("web", "10.96.0.1"));
    let mut source = Source::new(dir.0.clone()).select(Selectors::Until134);
    let mut asides = |text: &str| {
        dir.write("a.yaml", text);
        let update = source.read_all();
        let all = update.standing.asides.iter();
        all.map(|own| (own.reason.clone(), own.addresses.len(), own.ports.len()))
            .collect::<Vec<_>>()
    };
    let name = "spec: {type: ExternalName, externalName: example.com}";
    for (text, reason, addresses, ports) in [
        (service("db", "None"), AsideReason::Headless, 0, 1),
        (
            labelled("service-proxy-name: envoy"),
            AsideReason::OtherProxy("envoy".to_owned()),
            1,
            1,
        ),
        (labelled("headless: \"\""), AsideReason::HeadlessLabel, 1, 1),
        (
            format!("apiVersion: v1\nkind: Service\nmetadata: {{name: docs}}\n{name}\n"),
            AsideReason::ExternalName("example.com".to_owned()),
            0,
            0,
        ),
    ] {
        assert_eq!(vec![(reason, addresses, ports)], asides(&text), "{text}");
    }
    assert_eq!(0, asides("").len());
}
