//! From the text of one file to objects of the model.

use std::collections::HashSet;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::documents::documents;
use super::problem::{Place, Problem, Trouble};
use super::raw::{Head, Raw};
use crate::cluster::{Convert, Invalid, Selectors};
use crate::model::{Aside, Object, ObjectKey, ObjectName};

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) objects: Vec<(Place, Object)>,
    pub(super) problems: Vec<Problem>,
    /// Services that are none for us.
    pub(super) asides: Vec<Aside>,
    /// Objects that are declared but cannot be used.
    pub(super) refused: HashSet<ObjectKey>,
    /// Whether something could not even be told which object it is.
    pub(super) has_unknown: bool,
}

impl Parsed {
    /// Whether an object that was declared before stays although it is not among the objects.
    pub(super) fn keeps(&self, key: &ObjectKey) -> bool {
        self.has_unknown || self.refused.contains(key)
    }

    /// Whether it may declare more than is among the objects.
    pub(super) fn has_gaps(&self) -> bool {
        self.has_unknown || !self.refused.is_empty()
    }

    /// Whether there is nothing at all, as in a file that is gone.
    pub(super) const fn is_nothing(&self) -> bool {
        self.objects.is_empty() && self.problems.is_empty()
    }
}

pub(super) fn parse(file: &Path, text: &str, selectors: Selectors) -> Parsed {
    let is_json = file.extension().is_some_and(|ending| ending == "json");
    if is_json || text.trim_start().starts_with('{') {
        let mut parser = Parser::new(file, selectors);
        let is_sound = parser.json(text);
        // A brace opens a mapping of YAML as well.
        if is_sound || is_json {
            return parser.parsed;
        }
    }
    let mut parser = Parser::new(file, selectors);
    parser.yaml(text);
    parser.parsed
}

struct Parser<'a> {
    file: &'a Path,
    selectors: Selectors,
    parsed: Parsed,
}

impl<'a> Parser<'a> {
    fn new(file: &'a Path, selectors: Selectors) -> Self {
        Self {
            file,
            selectors,
            parsed: Parsed::default(),
        }
    }

    /// Whether it is JSON to the end.
    fn json(&mut self, text: &str) -> bool {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        for (index, document) in documents.enumerate() {
            let place = Place {
                document: index + 1,
                item: None,
            };
            match document {
                Ok(raw) => self.document(place, Raw::Json(raw), None),
                Err(error) => {
                    self.unknown(place, Trouble::Syntax(error.to_string()));
                    return false;
                }
            }
        }
        true
    }

    fn yaml(&mut self, text: &str) {
        for (index, document) in documents(text).enumerate() {
            let place = Place {
                document: index + 1,
                item: None,
            };
            match serde_saphyr::from_str_with_options::<Value>(document, yaml_options()) {
                Ok(Value::Null) => {}
                Ok(value) => self.document(place, Raw::Yaml(&value), None),
                Err(error) => self.unknown(place, Trouble::Syntax(error.to_string())),
            }
        }
    }

    /// Takes an object, or the items of a list. `default` is the kind that the items of a typed
    /// list have without saying so.
    fn document(&mut self, place: Place, raw: Raw<'_>, default: Option<Head<'_>>) {
        let Some(mut head) = raw.head() else {
            return self.unknown(place, Trouble::NotAnObject);
        };
        if let Some(default) = default {
            head.kind = head.kind.or(default.kind);
            head.api_version = head.api_version.or(default.api_version);
        }
        let kind = head.kind.as_deref().unwrap_or_default();
        match (kind, head.api_version.as_deref().unwrap_or_default()) {
            ("Service", "v1") => self.object::<Service>(place, raw, ObjectKey::Service),
            ("EndpointSlice", "discovery.k8s.io/v1") => {
                self.object::<EndpointSlice>(place, raw, ObjectKey::Slice);
            }
            ("Node", "v1") => {
                self.object::<Node>(place, raw, |name| ObjectKey::Node(name.name().into()));
            }
            ("ServiceCIDR", "networking.k8s.io/v1") => {
                self.object::<ServiceCIDR>(place, raw, |name| {
                    ObjectKey::ServiceCidr(name.name().into())
                });
            }
            ("List" | "ServiceList" | "NodeList", "v1")
            | ("EndpointSliceList", "discovery.k8s.io/v1")
            | ("ServiceCIDRList", "networking.k8s.io/v1") => self.list(place, raw, &head),
            (kind, version) => self.foreign(place, raw, kind, version),
        }
    }

    /// Notes that a document is of no kind, or of no version, that is known here. It may once have
    /// been good, so whatever has its name stays.
    fn foreign(&mut self, place: Place, raw: Raw<'_>, kind: &str, version: &str) {
        let invalid = match kind {
            "Service" | "Node" | "List" | "ServiceList" | "NodeList" => {
                Invalid::new("apiVersion", version, "legal is v1")
            }
            "EndpointSlice" | "EndpointSliceList" => {
                Invalid::new("apiVersion", version, "legal is discovery.k8s.io/v1")
            }
            "ServiceCIDR" | "ServiceCIDRList" => {
                Invalid::new("apiVersion", version, "legal is networking.k8s.io/v1")
            }
            _ => {
                let legal = "legal are Service, EndpointSlice, Node, ServiceCIDR and List";
                Invalid::new("kind", kind, legal)
            }
        };
        let Some(name) = raw.name() else {
            return self.unknown(place, invalid.into());
        };
        let node = ObjectKey::Node(name.name().into());
        let range = ObjectKey::ServiceCidr(name.name().into());
        let object = match kind {
            "" => name.to_string(),
            "Node" => node.to_string(),
            "ServiceCIDR" => range.to_string(),
            _ => format!("{kind} {name}"),
        };
        let slice = ObjectKey::Slice(name.clone());
        (self.parsed.refused).extend([ObjectKey::Service(name), slice, node, range]);
        self.parsed.problems.push(Problem {
            object: Some(object),
            ..place.problem(self.file, invalid)
        });
    }

    fn list(&mut self, place: Place, raw: Raw<'_>, head: &Head<'_>) {
        let kind = head
            .kind
            .as_deref()
            .and_then(|kind| kind.strip_suffix("List"));
        let Some(items) = raw.items() else {
            let trouble = Invalid::new("items", "this", "give a list of objects");
            return self.unknown(place, trouble.into());
        };
        for (index, item) in items.into_iter().enumerate() {
            let place = Place {
                item: Some(index + 1),
                ..place
            };
            let default = kind.filter(|kind| !kind.is_empty()).map(|kind| Head {
                kind: Some(kind.into()),
                api_version: head.api_version.clone(),
            });
            self.document(place, item, default);
        }
    }

    fn object<T: Convert + DeserializeOwned>(
        &mut self,
        place: Place,
        raw: Raw<'_>,
        key: fn(ObjectName) -> ObjectKey,
    ) {
        let object: T = match raw.typed() {
            Ok(object) => object,
            Err(trouble) => return self.refuse(place, raw, key, trouble),
        };
        if object.is_hidden(self.selectors) {
            self.parsed.asides.extend(object.aside());
            return;
        }
        match object.convert() {
            Ok(converted) => {
                self.parsed.asides.extend(converted.aside);
                for reason in converted.left_out {
                    let problem = self.named(place, raw, key, reason.into());
                    self.parsed.problems.push(problem);
                }
                self.parsed
                    .objects
                    .extend(converted.object.map(|object| (place, object)));
            }
            Err(invalid) => self.refuse(place, raw, key, invalid.into()),
        }
    }

    /// Notes that an object of a known kind cannot be used.
    fn refuse(
        &mut self,
        place: Place,
        raw: Raw<'_>,
        key: fn(ObjectName) -> ObjectKey,
        trouble: Trouble,
    ) {
        match raw.name() {
            Some(name) => {
                self.parsed.refused.insert(key(name));
            }
            None => self.parsed.has_unknown = true,
        }
        let problem = self.named(place, raw, key, trouble);
        self.parsed.problems.push(problem);
    }

    fn named(
        &self,
        place: Place,
        raw: Raw<'_>,
        key: fn(ObjectName) -> ObjectKey,
        trouble: Trouble,
    ) -> Problem {
        Problem {
            object: raw.name().map(|name| key(name).to_string()),
            ..place.problem(self.file, trouble)
        }
    }

    fn unknown(&mut self, place: Place, trouble: Trouble) {
        self.parsed.has_unknown = true;
        self.parsed.problems.push(place.problem(self.file, trouble));
    }
}

/// Limits that a file of a hundred thousand objects keeps; aliases stay bounded, as they alone
/// can make a small file large.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: None,
        emit_comments: false,
        with_snippet: false,
    }
}
