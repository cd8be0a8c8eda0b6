//! `actix::Message` for the messages: every fact and order is answered by nothing; what needs an
//! answer gets it as another message.

use actix::Message;

use crate::{
    Activity, Adopted, ChildExited, Delivered, Event, HostChanged, IdleTick, KeptEnded,
    LaunchFailed, Launched, MessageQueued, ReapReport, ReapRequest, StartGranted, StatusChanged,
    Stop, Suspend, TaskRoster, TreeEmptied,
};

macro_rules! facts {
    ($($name:ty),* $(,)?) => {
        $(impl Message for $name { type Result = (); })*
    };
}

facts! {
    Activity, Adopted, ChildExited, Delivered, Event, IdleTick, KeptEnded, LaunchFailed, Launched, MessageQueued, ReapReport, ReapRequest, StartGranted, StatusChanged, Stop, Suspend, TaskRoster, TreeEmptied, HostChanged,
}
