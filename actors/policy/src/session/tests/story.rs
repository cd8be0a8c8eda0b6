//! A session with a fake world around it: virtual time, a registry that always grants, an agent
//! with manners, and a reaper that does what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    Activity, ActivityKind, AgentStatus, Answer, AnswerAsk, Ask, AskKind, EndReport, ExitStatus,
    HoldId, HoldLifted, HoldTaken, IdleTick, Keeping, Limits, MessageId, MonoTime, Order, Progress,
    Refusal, SavedSession, SessionEvent, SessionState, Stop, StopHow, TaskRoster, TurnOutcome,
    Wake, WallTime, Who,
};

use super::world::{Manners, World, conversation, ended, later, saved, task};

use crate::session::{AgentTraits, Session};
use crate::{Effect, Input, trace};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// The wall clock of a story: an hour after 1970 when it begins.
pub(super) fn wall(now: MonoTime) -> WallTime {
    WallTime(3_600_000 + now.as_millis())
}

/// One session's story.
pub(super) struct Story {
    session: Option<Session>,
    pub(super) now: MonoTime,
    pub(super) world: World,
    agenda: BTreeMap<(MonoTime, u64), Input>,
    sequence: u64,
    messages: u64,
    /// Everything it asked for, with the time.
    effects: Vec<(MonoTime, Effect)>,
    lines: Vec<String>,
    pub(super) saved: Progress,
}

impl Story {
    /// A session that was never started.
    pub(super) fn dormant(manners: Manners) -> Self {
        Self::restored(&saved(Progress::default(), &[]), manners, Limits::default())
    }

    pub(super) fn restored(saved: &SavedSession, manners: Manners, limits: Limits) -> Self {
        let traits = AgentTraits {
            can_resume: true,
            reports_tasks: false,
            observed: false,
            steers: false,
        };
        Self::with(saved, manners, limits, traits)
    }

    pub(super) fn with(
        saved: &SavedSession,
        manners: Manners,
        limits: Limits,
        traits: AgentTraits,
    ) -> Self {
        let now = MonoTime::from_millis(0);
        Self {
            session: Some(Session::restore(saved, traits, limits, now)),
            now,
            world: World::new(manners),
            agenda: BTreeMap::new(),
            sequence: 0,
            messages: 0,
            effects: Vec::new(),
            lines: Vec::new(),
            saved: saved.progress.clone(),
        }
    }

    /// A session in its first turn, with message 1.
    pub(super) fn working(manners: Manners) -> Self {
        let mut story = Self::dormant(manners);
        story.message();
        story.wait(2 * SECOND);
        story
    }

    /// A session that has answered message 1 and can be resumed. Nothing before is remembered.
    pub(super) fn resting(manners: Manners) -> Self {
        let mut story = Self::working(manners);
        story.says(AgentStatus::Conversation(conversation(true)));
        story.turn_ends();
        story.forget();
        story
    }

    pub(super) fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub(super) fn state(&self) -> SessionState {
        self.session().state()
    }

    /// One step; what the world answers comes later.
    pub(super) fn feed(&mut self, input: impl Into<Input>) -> Vec<Effect> {
        let input = input.into();
        let (session, effects) = self
            .session
            .take()
            .unwrap()
            .at(wall(self.now))
            .step(&input, self.now);
        self.session = Some(session);
        self.lines.push(trace::line(self.now, &input, &effects));
        for effect in &effects {
            if let Effect::Save(progress) = effect {
                self.saved = Progress::clone(progress);
            }
            let answers = self.world.answer(effect);
            self.expect(answers);
        }
        self.effects
            .extend(effects.iter().map(|effect| (self.now, effect.clone())));
        effects
    }

    /// Puts what is to come on the agenda.
    pub(super) fn expect(&mut self, answers: Vec<(u64, Input)>) {
        for (delay, input) in answers {
            self.sequence += 1;
            let at = self.now.after(Duration::from_millis(delay));
            self.agenda.insert((at, self.sequence), input);
        }
    }

    /// Lets time pass: answers arrive, and ticks come exactly when they are wanted.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now.after(time);
        let steps_max = self.lines.len() + 10_000;
        loop {
            assert!(self.lines.len() < steps_max, "it spins:\n{}", self.trace());
            let tick = self.session().next_deadline();
            let answer = self.agenda.keys().next().map(|(at, _)| *at);
            let next = [tick, answer].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if answer == Some(next) {
                let (_, input) = self.agenda.pop_first().unwrap();
                self.feed(input);
            } else {
                self.feed(IdleTick);
            }
        }
        self.now = end;
    }

    /// Lets time pass in which the daemon does not run.
    pub(super) fn freeze(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn says(&mut self, status: AgentStatus) -> Vec<Effect> {
        let input = self.world.says(status);
        self.feed(input)
    }

    pub(super) fn turn_ends(&mut self) -> Vec<Effect> {
        self.world.in_turn = false;
        self.says(ended(TurnOutcome::Completed))
    }

    pub(super) fn exits(&mut self, code: i32) {
        let answers = self.world.exits(ExitStatus::Code(code));
        self.expect(answers);
        self.wait(200 * Duration::from_millis(1));
    }

    pub(super) fn roster(&mut self, tasks: &[&str]) {
        let tasks = tasks.iter().map(|id| task(id)).collect();
        let incarnation = self.session().incarnation();
        self.feed(TaskRoster { incarnation, tasks });
    }

    pub(super) fn asks(&mut self, id: &str) {
        self.says(AgentStatus::Asked(Ask {
            id: id.to_owned(),
            kind: AskKind::Approval,
            title: "Bash wants to run rm".to_owned(),
            detail: String::new(),
        }));
    }

    pub(super) fn output(&mut self) {
        let incarnation = Some(self.session().incarnation());
        let kind = ActivityKind::Output("a word".to_owned());
        self.feed(Activity { incarnation, kind });
    }

    /// The next message: 1, 2 ..
    pub(super) fn message(&mut self) -> Vec<Effect> {
        self.messages += 1;
        let message = MessageId(self.messages);
        self.feed(later(message.0))
    }

    pub(super) fn order(&mut self, order: Order) -> Result<(), Refusal> {
        for effect in self.feed(order) {
            if let Effect::Refuse(refusal) = effect {
                return Err(refusal);
            }
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, how: StopHow) -> Result<(), Refusal> {
        let by = Who::Client("me".to_owned());
        self.order(Order::Stop(Stop { how, by }))
    }

    pub(super) fn wake(&mut self, fresh: bool) {
        let by = Who::Client("me".to_owned());
        self.order(Order::Wake(Wake { fresh, by })).unwrap();
    }

    pub(super) fn answer(&mut self, id: &str) {
        let (id, answer) = (id.to_owned(), Answer::Allow);
        let by = Who::Client("me".to_owned());
        self.order(Order::Answer(AnswerAsk { id, answer, by }))
            .unwrap();
    }

    pub(super) fn hold(&mut self, id: u64, ttl: Duration) -> Result<(), Refusal> {
        self.order(Order::TakeHold(HoldTaken {
            id: HoldId(id),
            why: "deploy".to_owned(),
            owner: "ci".to_owned(),
            ttl,
        }))
    }

    pub(super) fn lift(&mut self, id: u64) {
        let id = HoldId(id);
        self.order(Order::LiftHold(HoldLifted { id })).unwrap();
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.feed(limits);
    }

    /// Forgets what was asked for so far.
    pub(super) fn forget(&mut self) {
        self.effects.clear();
        self.lines.clear();
    }

    /// What was asked for, in words, without what is only written down or published.
    pub(super) fn done(&self) -> Vec<String> {
        self.words(|word| {
            ![
                "save(",
                "!",
                "sleep",
                "start-settled",
                "ask-start",
                "settle(",
            ]
            .iter()
            .any(|dull| word.starts_with(dull))
        })
    }

    /// Effects whose words begin so.
    pub(super) fn words(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.effects
            .iter()
            .map(|(_, effect)| trace::effect_in_words(effect))
            .filter(|word| wanted(word))
            .collect()
    }

    pub(super) fn count(&self, start: &str) -> usize {
        self.words(|word| word.starts_with(start)).len()
    }

    /// When something was first asked for.
    pub(super) fn when(&self, start: &str) -> Option<MonoTime> {
        self.effects
            .iter()
            .find(|(_, effect)| trace::effect_in_words(effect).starts_with(start))
            .map(|(at, _)| *at)
    }

    pub(super) fn trace(&self) -> String {
        self.lines.join("\n")
    }

    /// The events that were published.
    pub(super) fn events(&self) -> impl Iterator<Item = &SessionEvent> {
        self.effects.iter().filter_map(|(_, effect)| {
            if let Effect::Publish(event) = effect {
                Some(event)
            } else {
                None
            }
        })
    }

    /// As written down last.
    pub(super) fn progress(&self) -> Progress {
        self.saved.clone()
    }

    /// What it keeps, as written down last.
    pub(super) fn kept(&self) -> Keeping {
        self.saved.keeping.clone()
    }

    /// Why the last process ended, as written down last.
    pub(super) fn reason(&self) -> String {
        self.end()
            .map_or_else(String::new, |end| end.reason.to_string())
    }

    /// The report of the last process, as published.
    pub(super) fn end(&self) -> Option<EndReport> {
        let ends = self.events().filter_map(|event| {
            if let SessionEvent::Released { end } = event {
                Some(EndReport::clone(end))
            } else {
                None
            }
        });
        ends.last()
    }
}
