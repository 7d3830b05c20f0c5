use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn canonical(text: &str) -> String {
    Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).canonical()
}

#[rstest]
#[case("https://github.com/example/app.git")]
#[case("https://github.com/example/app")]
#[case("https://github.com/example/app/")]
#[case("https://GitHub.com:443/example//app.git/")]
#[case("https://user:secret@github.com/example/app.git")]
#[case("http://github.com/example/app.git")]
#[case("git://github.com/example/app.git")]
#[case("ssh://git@github.com/example/app.git")]
#[case("ssh://git@github.com:22/example/app")]
#[case("git+ssh://git@github.com/example/app")]
#[case("git@github.com:example/app.git")]
#[case("git@github.com:/example/app.git")]
#[case("github.com:example/app")]
#[case("ssh://git@ssh.github.com:443/example/app.git")]
#[case("https://github.com/ex%61mple/app.git")]
fn spellings_of_one_repository(#[case] text: &str) {
    assert_eq!(canonical(text), "github.com/example/app");
}

#[rstest]
#[case("https://github.com/example/app", "https://github.com/example/App")]
#[case("https://github.com/example/app", "https://github.com/example/app2")]
#[case("https://git.example.com/app", "https://git.example.com:8443/app")]
#[case("https://git.example.com/app", "/git.example.com/app")]
#[case("ssh://host/~me/app", "ssh://host/me/app")]
#[case("https://host/a%2Fb", "https://host/a/b")]
fn different_repositories(#[case] one: &str, #[case] other: &str) {
    assert_ne!(canonical(one), canonical(other));
    let directory = |text| Address::parse(text).unwrap().directory();
    assert_ne!(directory(one), directory(other));
}

#[rstest]
#[case("")]
#[case("-upload-pack=evil:x")]
#[case("ext::sh -c evil")]
#[case("ext::sh")]
#[case("https://github.com")]
#[case("https:///path")]
#[case("https://host:many/path")]
#[case("ftp://host/path")]
#[case("just-a-word")]
#[case("ssh://-oProxyCommand=evil/path")]
#[case("two words@host:path")]
fn what_is_no_address_is_refused(#[case] text: &str) {
    assert!(Address::parse(text).is_err(), "{:?}", Address::parse(text));
}

#[rstest]
#[case("https://user:secret@github.com/example/app.git", "https://github.com/example/app.git")]
#[case("https://user@host:8443/app", "https://host:8443/app")]
#[case("git@github.com:example/app.git", "ssh://git@github.com/example/app.git")]
#[case("ssh://git:secret@host:2222/app", "ssh://git@host:2222/app")]
#[case("https://[::1]:8080/app", "https://[::1]:8080/app")]
#[case("/srv/git/app", "/srv/git/app")]
fn git_gets_no_secrets(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(Address::parse(text).unwrap().without_secrets(), expected);
}

#[rstest]
#[case("https://github.com/example/app.git", "../lib.git", "github.com/example/lib")]
#[case("https://github.com/example/app.git", "../../other/lib", "github.com/other/lib")]
#[case("git@github.com:example/app.git", "./sub", "github.com/example/app.git/sub")]
#[case("https://github.com/example/app", "git@host:lib", "host/lib")]
fn addresses_of_submodules(#[case] base: &str, #[case] other: &str, #[case] expected: &str) {
    assert_eq!(Address::parse(base).unwrap().relative(other).unwrap().canonical(), expected);
}

#[test]
fn a_relative_address_stays_on_its_server() {
    assert!(Address::parse("https://host/app").unwrap().relative("../../../x").is_err());
    assert!(Address::parse("https://host/app").unwrap().relative("..//").is_err());
}

#[test]
fn directories_can_be_read_and_are_stable() {
    let directory = |text| Address::parse(text).unwrap().directory();
    insta::assert_snapshot!(directory("git@github.com:example/app.git"), @"example-app-315f533aed850cb7");
    assert!(directory("ssh://host/ü/ü").starts_with("repository-"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        if let Ok(address) = Address::parse(&text) {
            let directory = address.directory();
            prop_assert!(directory.len() <= READABLE + 1 + 2 * DIGEST);
            prop_assert!(directory.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
            prop_assert!(!directory.starts_with('.'));
            let _may_fail = address.relative(&text);
        }
    }

    #[test]
    fn users_ports_and_endings_do_not_matter(
        host in "[a-z][a-z0-9-]{0,10}\\.(com|dev)",
        path in "[a-zA-Z0-9_]{1,8}(/[a-zA-Z0-9_-]{1,8}){0,3}",
        user in "[a-z]{1,8}",
        password in "[A-Z]{12}",
        ending in prop::sample::select(vec!["", ".git", "/", ".git/"]),
    ) {
        let spellings = [
            format!("https://{host}/{path}{ending}"),
            format!("https://{user}:{password}@{host}:443/{path}{ending}"),
            format!("ssh://{user}@{host}/{path}{ending}"),
            format!("ssh://{user}@{host}:22/{path}{ending}"),
            format!("{user}@{host}:{path}{ending}"),
            format!("{host}:/{path}{ending}"),
        ];
        for spelling in spellings {
            let address = Address::parse(&spelling).unwrap();
            prop_assert_eq!(address.canonical(), format!("{host}/{path}"));
            // Whatever leaves the process has no password.
            for shown in [address.without_secrets(), address.directory(), format!("{address:?} {address}")] {
                prop_assert!(!shown.contains(&password), "{}", shown);
            }
            // And git's spelling means the same.
            prop_assert_eq!(Address::parse(&address.without_secrets()).unwrap().canonical(), address.canonical());
        }
    }
}
