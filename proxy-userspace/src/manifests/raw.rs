//! Objects before their kind is known, from either syntax.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::problem::Trouble;
use crate::model::ObjectName;

/// An object before its kind is known.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    Json(&'a RawValue),
    Yaml(&'a Value),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) kind: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: Option<String>,
    name: String,
}

impl<'a> Raw<'a> {
    pub(super) fn head(self) -> Option<Head<'a>> {
        match self {
            Self::Json(raw) => serde_json::from_str(raw.get()).ok(),
            Self::Yaml(value) => value.is_object().then(|| Head {
                api_version: value
                    .get("apiVersion")
                    .and_then(Value::as_str)
                    .map(Cow::from),
                kind: value.get("kind").and_then(Value::as_str).map(Cow::from),
            }),
        }
    }

    /// The items of a list; nothing if it has something else there.
    pub(super) fn items(self) -> Option<Vec<Self>> {
        match self {
            Self::Json(raw) => {
                let list = serde_json::from_str::<Items<'_>>(raw.get()).ok()?;
                let items = list.items.unwrap_or_default();
                Some(items.into_iter().map(Self::Json).collect())
            }
            Self::Yaml(value) => match value.get("items") {
                None | Some(Value::Null) => Some(Vec::new()),
                Some(items) => Some(items.as_array()?.iter().map(Self::Yaml).collect()),
            },
        }
    }

    pub(super) fn name(self) -> Option<ObjectName> {
        let named = match self {
            Self::Json(raw) => serde_json::from_str(raw.get()),
            Self::Yaml(value) => Named::deserialize(value),
        };
        let Metadata { namespace, name } = named.ok()?.metadata;
        let namespace = namespace.filter(|text| !text.is_empty());
        Some(ObjectName::new(
            namespace.as_deref().unwrap_or("default"),
            &name,
        ))
    }

    pub(super) fn typed<T: DeserializeOwned>(self) -> Result<T, Trouble> {
        // Paths cost time, so they are followed only where something is wrong.
        let quick = match self {
            Self::Json(raw) => serde_json::from_str(raw.get()),
            Self::Yaml(value) => T::deserialize(value),
        };
        let Err(_) = quick else {
            return quick.map_err(|error| Trouble::Syntax(error.to_string()));
        };
        let slow = match self {
            Self::Json(raw) => {
                serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
            }
            Self::Yaml(value) => serde_path_to_error::deserialize(value),
        };
        slow.map_err(|error| {
            let field = error.path().to_string();
            let message = legible(&field, error.into_inner().to_string());
            Trouble::Type { field, message }
        })
    }
}

/// What people call the type, and what is legal there.
fn legible(field: &str, message: String) -> String {
    match message.strip_suffix("expected i32") {
        Some(found) if field.to_lowercase().ends_with("port") => {
            format!("{found}expected a number from 1 to 65535")
        }
        Some(found) => format!("{found}expected a number"),
        None => message,
    }
}
