//! Requests under way: how ours are numbered, and what each one that is not answered is about.
//!
//! Fed by observers and relays, for both sides of a wire. Bounded: see [`PENDING_MAX`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Id, OURS};

/// 256: agents and hosts have a handful of requests under way; one more is not remembered, and its
/// answer reads like that of an unknown one.
const PENDING_MAX: usize = 256;

/// 128 bytes: hosts use numbers and UUIDs; what is kept is bounded.
const ID_BYTES_MAX: usize = 128;

/// Numbers our own requests.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct Ours(u64);

impl Ours {
    /// The next id: `drowse-N`.
    pub(in super::super) fn next(&mut self) -> Id {
        self.0 += 1;
        Id::Text(format!("{OURS}{}", self.0))
    }

    /// The next id of another who speaks to the same agent: `drowse-WHO-N`.
    pub(in super::super) fn next_of(&mut self, who: &str) -> Id {
        self.0 += 1;
        Id::Text(format!("{OURS}{who}-{}", self.0))
    }

    /// Leaves out numbers that may have been given by one that is not remembered.
    pub(in super::super) fn skip(&mut self, numbers: u64) {
        self.0 = self.0.saturating_add(numbers);
    }
}

/// Requests of one side that are not answered, with what each is about; bounded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    transparent,
    bound(deserialize = "W: Deserialize<'de>", serialize = "W: Serialize")
)]
pub(in super::super) struct Pending<W> {
    /// A list, because JSON has no numbers as keys.
    #[serde(with = "as_list")]
    asked: BTreeMap<Id, W>,
}

impl<W> Default for Pending<W> {
    fn default() -> Self {
        Self {
            asked: BTreeMap::new(),
        }
    }
}

impl<W> Pending<W> {
    /// A request was written.
    pub(in super::super) fn asked(&mut self, id: Id, what: W) {
        let is_short = match &id {
            Id::Text(text) => text.len() <= ID_BYTES_MAX,
            Id::Number(_) => true,
        };
        if is_short && (self.asked.len() < PENDING_MAX || self.asked.contains_key(&id)) {
            self.asked.insert(id, what);
        }
    }

    /// Its answer came: what it was about, once.
    pub(in super::super) fn answered(&mut self, id: &Id) -> Option<W> {
        self.asked.remove(id)
    }

    /// What the request with this id is about.
    pub(in super::super) fn get(&self, id: &Id) -> Option<&W> {
        self.asked.get(id)
    }

    /// All of them, by id.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = (&Id, &W)> {
        self.asked.iter()
    }

    /// Forgets all of them, and gives them.
    pub(in super::super) fn take(&mut self) -> BTreeMap<Id, W> {
        std::mem::take(&mut self.asked)
    }
}

/// A map as a list of pairs.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Id;

    pub(super) fn serialize<W: Serialize, S: Serializer>(
        map: &BTreeMap<Id, W>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, W: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<Id, W>, D::Error> {
        Ok(Vec::<(Id, W)>::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D41: what is pending is the same after it was written down; ids keep their shape.
    #[test]
    fn pending_requests_are_kept() {
        let mut pending = Pending::default();
        pending.asked(Id::Number(1), 'n');
        pending.asked(Id::Text("1".to_owned()), 't');
        let json = serde_json::to_string(&pending).expect("it is JSON");
        let mut again: Pending<char> = serde_json::from_str(&json).expect("as written");
        assert_eq!(again.answered(&Id::Number(1)), Some('n'));
        assert_eq!(again.answered(&Id::Number(1)), None);
        assert_eq!(again.iter().count(), 1);
        for number in 0..1_000 {
            again.asked(Id::Number(number), 'x');
        }
        assert_eq!(again.take().len(), PENDING_MAX);
        assert_eq!(again.iter().count(), 0);
    }
}
