//! A condition in CEL, the language of Kubernetes' own rules.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, Program,
    common::ast::{CallExpr, EntryExpr, Expr},
    extensions,
    objects::{Key, Value},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What expressions may speak of.
const VARIABLES: [&str; 2] = ["self", "pod"];

/// What the language has, with the functions on text that Kubernetes' rules have too.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut language = Env::stdlib();
    language.add_extension(extensions::strings).expect("the standard functions have other names");
    Arc::new(language)
});

/// A condition: its text, and what is made of it once.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    program: Result<Arc<Program>, String>,
}

impl Expression {
    /// Reads a condition; [`Self::check`] tells what is wrong with it.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let program = compile(&text).map(Arc::new);
        Self { text, program }
    }

    /// What is wrong with it, and in which column.
    pub fn check(&self) -> Result<(), String> {
        if self.text.trim().is_empty() {
            return Err("it is missing".to_owned());
        }
        self.program.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Whether it speaks of this variable.
    pub fn mentions(&self, variable: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.references().has_variable(variable))
    }

    /// Whether it holds for these values of its variables, or why that cannot be told.
    pub fn holds(&self, variables: &[(&str, &serde_json::Value)]) -> Result<bool, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let mut context = Context::with_env(LANGUAGE.clone());
        for (name, value) in variables {
            context.add_variable_from_value(*name, of_json(value));
        }
        match program.execute(&context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => {
                Err(format!("it is neither true nor false, but a value of type {}", other.type_of()))
            }
            Err(ExecutionError::NoSuchKey(key)) => {
                Err(format!("there is no `{key}` in the object; ask for it with has() first"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn compile(text: &str) -> Result<Program, String> {
    let program = LANGUAGE.compile(text).map_err(|errors| match errors.errors.first() {
        Some(error) => place(text, error.pos, error.msg.lines().next().unwrap_or_default()),
        None => "it cannot be read".to_owned(),
    })?;
    let mut unknown = None;
    look_through(program.expression(), &mut Vec::new(), &mut unknown);
    match unknown {
        None => Ok(program),
        Some((id, problem)) => {
            let offset = program.source_info().offset_for(id).map_or(0, |(start, _)| start as usize);
            let before = text.get(..offset).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            Err(place(text, (line.cast_signed(), column.cast_signed()), &problem))
        }
    }
}

/// Most expressions have one line.
fn place(text: &str, (line, column): (isize, isize), problem: &str) -> String {
    if text.trim_end().contains('\n') {
        format!("line {line} column {column}: {problem}")
    } else {
        format!("column {column}: {problem}")
    }
}

/// Finds the first name that nobody knows. Names of loops are known inside of them.
fn look_through(expression: &IdedExpr, known: &mut Vec<String>, unknown: &mut Option<(u64, String)>) {
    if unknown.is_some() {
        return;
    }
    let mut into = |inner: &IdedExpr, known: &mut Vec<String>| look_through(inner, known, unknown);
    match &expression.expr {
        Expr::Ident(name) => {
            let is_known =
                VARIABLES.contains(&name.as_str()) || name.starts_with('@') || known.contains(name);
            if !is_known {
                let problem = format!("there is no `{name}`; expressions speak of `self` and `pod`");
                *unknown = Some((expression.id, problem));
            }
        }
        Expr::Call(call) => {
            call.target.iter().for_each(|target| into(target, known));
            call.args.iter().for_each(|argument| into(argument, known));
            if unknown.is_none() && !is_function(call) {
                *unknown = Some((expression.id, format!("there is no function `{}`", call.func_name)));
            }
        }
        Expr::Comprehension(repeated) => {
            into(&repeated.iter_range, known);
            into(&repeated.accu_init, known);
            let before = known.len();
            known.push(repeated.iter_var.clone());
            known.extend(repeated.iter_var2.clone());
            known.push(repeated.accu_var.clone());
            for inner in [&repeated.loop_cond, &repeated.loop_step, &repeated.result] {
                into(inner, known);
            }
            known.truncate(before);
        }
        Expr::List(list) => list.elements.iter().for_each(|element| into(element, known)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                into(&entry.key, known);
                into(&entry.value, known);
            }
            EntryExpr::StructField(field) => into(&field.value, known),
        }),
        Expr::Select(select) => into(&select.operand, known),
        Expr::Struct(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Whether the language has a function of this name. It says so itself when the function is called, if with the wrong things.
fn is_function(call: &CallExpr) -> bool {
    let is_operator = !call.func_name.starts_with(|c: char| c.is_ascii_alphabetic());
    let nothing = |_: &_| IdedExpr { id: 0, expr: Expr::List(cel::common::ast::ListExpr::default()) };
    let trial = CallExpr {
        func_name: call.func_name.clone(),
        target: call.target.as_ref().map(|target| Box::new(nothing(target.as_ref()))),
        args: call.args.iter().map(nothing).collect(),
    };
    let context = Context::with_env(LANGUAGE.clone());
    let tried = context.resolve(&IdedExpr { id: 0, expr: Expr::Call(trial) });
    is_operator || !matches!(tried, Err(ExecutionError::UndeclaredReference(_)))
}

/// JSON as the language knows it. Whole numbers are of one kind, so that they can be compared with those in expressions.
fn of_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::String(Arc::new(text.clone())),
        serde_json::Value::Array(items) => Value::List(Arc::new(items.iter().map(of_json).collect())),
        serde_json::Value::Object(fields) => {
            let entries = fields.iter().map(|(key, value)| (Key::from(key.clone()), of_json(value)));
            Value::Map(entries.collect::<HashMap<Key, Value>>().into())
        }
    }
}

impl Default for Expression {
    fn default() -> Self {
        Self::new("")
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl JsonSchema for Expression {
    fn schema_name() -> Cow<'static, str> {
        "Expression".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("self.spec.image.endsWith(':latest')", Ok(false))]
    #[case("self.spec.buildkite.priority > 3 && self.spec.buildkite.priority < 10.5", Ok(true))]
    #[case("!has(self.spec.timeout)", Ok(true))]
    #[case(
        "self.spec.env.exists(e, e.name == 'CI') && self.spec.env.all(e, e.name.matches('^[A-Z]+$'))",
        Ok(true)
    )]
    #[case("pod.spec.containers.map(c, c.image) == ['golang:1.26']", Ok(true))]
    #[case("self.spec.image.split(':')[1].upperAscii() == '1.26'", Ok(true))]
    #[case(
        "self.spec.timeout == '5m'",
        Err("there is no `timeout` in the object; ask for it with has() first")
    )]
    #[case("self.spec.image", Err("it is neither true nor false, but a value of type string"))]
    fn conditions_hold_or_not(#[case] text: &str, #[case] expected: Result<bool, &str>) {
        let job = json!({"spec": {
            "image": "golang:1.26", "buildkite": {"priority": 7}, "env": [{"name": "CI"}, {"name": "PATH"}]
        }});
        let pod = json!({"spec": {"containers": [{"image": "golang:1.26"}]}});
        let expression = Expression::new(text);
        assert_eq!(expression.check(), Ok(()));
        assert_eq!(expression.holds(&[("self", &job), ("pod", &pod)]), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case("", "it is missing")]
    #[case("self.spec.image ==", "column 19: ")]
    #[case(
        "self.spec.image == 'a' && job.spec.image == 'b'",
        "column 27: there is no `job`; expressions speak of `self` and `pod`"
    )]
    #[case("self.spec.env.all(e, e.name != f.name)", "column 32: there is no `f`")]
    #[case("self.spec.image.startswith('a')", "column 27: there is no function `startswith`")]
    #[case("self.spec.env.all(e,\n  lenght(e.name) < 9)", "line 2 column 9: there is no function `lenght`")]
    fn mistakes_have_a_column(#[case] text: &str, #[case] expected: &str) {
        let problem = Expression::new(text).check().unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn what_it_speaks_of_is_known() {
        let expression = Expression::new("pod.spec.containers.all(c, has(c.image))");
        assert!(expression.mentions("pod") && !expression.mentions("self"));
    }

    #[test]
    fn a_regular_expression_is_not_an_unknown_function() {
        assert_eq!(Expression::new("size(self.spec.image) > 2 && 'a'.contains('b')").check(), Ok(()));
    }
}
