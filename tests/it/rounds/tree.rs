//! Trees of misbehaving processes, made up by chance: scripts of `bin/tree_agent.rs`.
//!
//! Invariant: every process of a tree writes itself into the tree's file as soon as it is there,
//! and has the path of that file in its arguments, so that it is known by either.

use drowse_tests::rng::Rng;

/// 3 levels of branches: deep enough for each way to escape below each other.
const DEPTH_MAX: u64 = 2;
/// 3 branches at each level: some 40 processes in the largest tree.
const BRANCHES_MAX: u64 = 3;

/// What a tree is made of.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The script of its first process, up to what that one does in the end.
    pub(super) script: String,
    /// Processes that write themselves down before anybody is asked to end.
    pub(super) reports: usize,
}

/// Draws a tree whose processes write themselves into `file`. If they `may_hide`, some clear their
/// environment, and some are never there when one looks: neither is found by its mark alone.
pub(super) fn draw(rng: &mut Rng, file: &str, may_hide: bool) -> Tree {
    let mut tree = Tree {
        script: String::new(),
        reports: 0,
    };
    let mut grower = Grower {
        rng,
        file,
        may_hide,
        tree: &mut tree,
    };
    if grower.rng.chance(200) {
        grower.push("ignore;");
    }
    let into = format!("into {file};");
    for _ in 0..=grower.rng.below(BRANCHES_MAX) {
        grower.branch(DEPTH_MAX, &into);
    }
    tree
}

struct Grower<'a> {
    rng: &'a mut Rng,
    file: &'a str,
    may_hide: bool,
    tree: &'a mut Tree,
}

impl Grower<'_> {
    fn push(&mut self, text: &str) {
        self.tree.script.push_str(text);
    }

    /// `before`, the life of one process, `after`.
    fn around(&mut self, before: &str, depth: u64, after: &str) {
        self.push(before);
        self.life(depth);
        self.push(after);
    }

    fn fixed(&mut self, script: &str, reports: usize) {
        self.push(script);
        self.tree.reports += reports;
    }

    /// One process: it writes itself down, has branches of its own, and stays.
    fn life(&mut self, depth: u64) {
        self.fixed("report;", 1);
        if depth > 0 {
            for _ in 0..self.rng.below(BRANCHES_MAX) {
                self.branch(depth - 1, "");
            }
        }
        self.push("sleep");
    }

    /// One child and whatever is below it. `first` is what it does before anything else.
    fn branch(&mut self, depth: u64, first: &str) {
        let fork = format!("fork[{first}");
        match self.rng.below(24) {
            0 => self.around(&fork, depth, "];"),
            1..=3 => self.around(&format!("{fork}setsid;"), depth, "];"),
            4..=5 => self.around(&format!("{fork}fork["), depth, "]];"),
            6..=7 => self.around(&format!("{fork}setsid;fork["), depth, "]];"),
            8..=9 => self.around(&format!("{fork}ignore;setsid;"), depth, "];"),
            10 => self.around(&format!("{fork}name x) S 1 1 (y;"), depth, "];"),
            11..=12 => {
                let replaced = if self.may_hide { "bare" } else { "times 1" };
                let bare = format!("{fork}setsid;{replaced}[into {};", self.file);
                self.around(&bare, depth, "]];");
            }
            13 => {
                self.fixed(&format!("{fork}thread[fork["), 1);
                self.around("", depth, "];sleep];report;sleep];");
            }
            14 => self.around(&format!("{fork}leaderless["), depth, "]];"),
            15 => {
                let life = "onterm[fork[ignore;setsid;report;sleep];fork[report;sleep]]];";
                self.fixed(&format!("{fork}{life}"), 1);
            }
            16..=17 => {
                let life = "report;respawn[setsid;report;sleep]];";
                self.fixed(&format!("{fork}{life}"), 2);
            }
            18 => self.fixed(&format!("{fork}report;stop;sleep];"), 1),
            19 => {
                let life = "subreaper;report;fork[fork[setsid;report;sleep]];sleep];";
                self.fixed(&format!("{fork}{life}"), 2);
            }
            20 => self.fixed(&format!("{fork}setsid;report;closeall;sleep];"), 1),
            21 => self.fixed(&format!("times 6[{fork}setsid;report;sleep]];"), 6),
            22 => self.nested(&fork),
            _ => self.busy(&fork),
        }
    }

    /// A supervisor below ours, with a keeper and an agent.
    fn nested(&mut self, fork: &str) {
        let (daemon, keeper) = (
            env!("CARGO_BIN_EXE_fake-daemon"),
            env!("CARGO_BIN_EXE_drowse-dup"),
        );
        let agent = env!("CARGO_BIN_EXE_tree-agent");
        let life = format!("into {};report;fork[setsid;report;sleep];sleep", self.file);
        // Without a socket for another daemon, and with a second in which to wait for one.
        let words = format!("{daemon} {keeper}  1000 {agent}");
        let script = format!("{fork}setsid;report;quiet;become {words}[{life}]];");
        self.fixed(&script, 3);
    }

    /// Those that never rest, or are never there when one looks; few, for they take processor time
    /// from all others.
    fn busy(&mut self, fork: &str) {
        let life = *self.rng.one_of(&["runner", "storm 200", "spin", "sleep"]);
        let is_found = self.may_hide || life != "runner";
        let life = if is_found { life } else { "storm 200" };
        self.fixed(&format!("{fork}report;{life}];"), 1);
    }
}
