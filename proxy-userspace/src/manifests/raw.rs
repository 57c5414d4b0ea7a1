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
    items: Vec<&'a RawValue>,
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

    pub(super) fn items(self) -> Vec<Self> {
        match self {
            Self::Json(raw) => {
                let list = serde_json::from_str::<Items<'_>>(raw.get());
                list.map(|list| list.items.into_iter().map(Self::Json).collect())
                    .unwrap_or_default()
            }
            Self::Yaml(value) => {
                let items = value.get("items").and_then(Value::as_array);
                items.into_iter().flatten().map(Self::Yaml).collect()
            }
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
        slow.map_err(|error| Trouble::Type {
            field: error.path().to_string(),
            message: error.into_inner().to_string(),
        })
    }
}
