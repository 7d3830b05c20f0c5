//! From a field of a BuildJob back to the step that it comes from.

use bk_pipeline::node::{Node, Value};
use bk_plan::{
    options::{self, PREFIX},
    plugin,
};

/// A step in its document.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The whole pipeline.
    pub(crate) root: &'a Node,
    /// The step.
    pub(crate) step: &'a Node,
}

impl<'a> Origin<'a> {
    /// Where a field of the step's BuildJob, or of its pod, was written.
    pub(crate) fn of_field(self, path: &str) -> &'a Node {
        if let Some(rest) = path.strip_prefix("pod.spec.containers") {
            return self.container(rest);
        }
        let path = path.strip_prefix("spec.").unwrap_or(path);
        // Behind the arrow is a BuildEnvironment, which is somewhere else.
        let path = path.split([':', '→']).next().unwrap_or(path).trim();
        if let Some(rest) = path.strip_prefix(options::KUBERNETES) {
            return self.plugin(plugin::is_kubernetes, rest);
        }
        if path.starts_with("command") {
            return self.attribute(&["command", "commands"]);
        }
        if path.starts_with("buildkite.agentQueryRules") {
            return self.attribute(&["agents", "agent_query_rules"]);
        }
        let option = options::ALL.iter().find(|option| path.starts_with(option.field));
        option.map_or(self.step, |option| self.option(option, &path[option.field.len()..]))
    }

    /// Where an option was written, by the name that messages have for it.
    pub(crate) fn of_option(self, place: &str) -> &'a Node {
        let plugin_key = place.strip_prefix(plugin::OPERATOR).and_then(|rest| rest.strip_prefix(": "));
        if let Some(rest) = plugin_key {
            return self.plugin(plugin::is_operator, rest.split(" with ").next().unwrap_or(rest));
        }
        if place.starts_with(PREFIX) {
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let name = place.split(|c| !is_name(c)).next().unwrap_or(place);
            return self.variable(name).unwrap_or(self.step);
        }
        match place {
            "kubernetes plugin" => self.plugin(plugin::is_kubernetes, ""),
            "the step's image" => self.attribute(&["image"]),
            _ => self.attribute(&["agents", "agent_query_rules"]),
        }
    }

    /// An attribute of the step, or else of the pipeline.
    pub(crate) fn attribute(self, names: &[&str]) -> &'a Node {
        let of = |node: &'a Node| names.iter().find_map(|name| node.get(name));
        of(self.step).or_else(|| of(self.root)).unwrap_or(self.step)
    }

    /// What a plugin is given: the content of each of its entries.
    pub(crate) fn plugins(self, is_it: fn(&str) -> bool) -> Vec<&'a Node> {
        let entries = |node: &'a Node| match &node.value {
            Value::Map(entries) => entries.iter().collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let all = match self.step.get("plugins") {
            Some(Node { value: Value::List(items), .. }) => items.iter().flat_map(entries).collect(),
            Some(node) => entries(node),
            None => Vec::new(),
        };
        all.into_iter().filter(|(name, _)| is_it(name)).map(|(_, content)| content).collect()
    }

    /// A part of what a plugin is given. Later entries go before earlier ones.
    fn plugin(self, is_it: fn(&str) -> bool, path: &str) -> &'a Node {
        let contents = self.plugins(is_it);
        let found = contents.iter().rev().map(|content| (content, content.nearest(path)));
        let found = found.filter(|(content, node)| content.place != node.place).map(|(_, node)| node).next();
        found.or(contents.last().copied()).unwrap_or_else(|| self.attribute(&["plugins"]))
    }

    /// An option in the plugin, or else in a variable, or else in what the step has for it.
    fn option(self, option: &options::StepOption, rest: &str) -> &'a Node {
        let contents = self.plugins(plugin::is_operator);
        if contents.iter().any(|content| content.get(option.name).is_some()) {
            return self.plugin(plugin::is_operator, &format!("{}{rest}", option.name));
        }
        if let Some(variable) = self.variable(&option.variable()) {
            return variable;
        }
        match option.name {
            "image" => self.attribute(&["image"]),
            "resource_class" => self.attribute(&["agents", "agent_query_rules"]),
            _ => self.step,
        }
    }

    /// A variable of the step, or else of the pipeline.
    fn variable(self, name: &str) -> Option<&'a Node> {
        [self.step, self.root].into_iter().find_map(|node| node.get("env")?.get(name))
    }

    /// A container of the pod, from `[NAME].image`.
    fn container(self, path: &str) -> &'a Node {
        let (name, rest) = path.trim_start_matches('[').split_once(']').unwrap_or((path, ""));
        let contents = self.plugins(plugin::is_kubernetes);
        for list in ["podSpec.containers", "containers", "sidecars", "podSpec.initContainers"] {
            for content in &contents {
                let Value::List(items) = &content.nearest(list).value else { continue };
                let named = |item: &&Node| item.get("name").and_then(Node::scalar).as_deref() == Some(name);
                let index = name.rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
                let unnamed = || items.get(index?).filter(|item| item.get("name").is_none());
                if let Some(item) = items.iter().find(named).or_else(unnamed) {
                    return item.nearest(rest);
                }
            }
        }
        if rest == ".image" { self.of_field("spec.image") } else { self.plugin(plugin::is_kubernetes, "") }
    }
}
