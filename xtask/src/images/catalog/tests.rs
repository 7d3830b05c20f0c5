use super::*;

/// The Dockerfile as one line per instruction and single blanks, so that it can be searched.
fn flat(image: Image) -> String {
    image
        .dockerfile()
        .replace("\\\n", " ")
        .split(' ')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn root_file_systems_are_those_of_the_dockerfiles() {
    for image in Image::ALL {
        let Some(rootfs) = image.rootfs() else { continue };
        let text = flat(image);
        let install = format!("--no-install-recommends {} &&", rootfs.packages.join(" "));
        assert!(text.contains(&install), "{image:?} installs other packages than {install}");
        for account in rootfs.accounts {
            assert!(text.contains(account), "{image:?} lacks `{account}`");
        }
        let base = text.lines().rfind(|line| line.starts_with("FROM")).unwrap();
        assert!(base.starts_with("FROM debian:12.") && base.ends_with("-slim"), "{image:?}: {base}");
    }
}

#[test]
fn programs_are_those_of_the_dockerfiles() {
    for image in Image::ALL {
        let text = flat(image);
        for binary in image.binaries() {
            assert!(text.contains(&format!("/{}", binary.name())), "{image:?} does not copy {binary:?}");
        }
    }
}

#[test]
fn entry_points_exist_and_what_serves_is_not_root() {
    for image in Image::ALL {
        let config = image.config().unwrap();
        let expected = match image {
            Image::Operator | Image::Local => "65532:65532",
            Image::Agent | Image::Toolbox => "0:0",
        };
        assert_eq!(config.user, expected, "{image:?}");
        assert_eq!(config.labels["org.opencontainers.image.title"], image.name());
        if image != Image::Toolbox {
            let program = config.entrypoint.last().unwrap().trim_start_matches('/');
            let is_held = program == AGENT_ENTRYPOINT && image == Image::Agent
                || image.binaries().iter().any(|binary| binary.path() == program);
            assert!(is_held, "{image:?}: {program}");
        }
    }
}

#[test]
fn the_agent_is_built_with_the_go_that_its_module_asks_for() {
    let module = include_str!("../../../../hack/agent/go.mod");
    let version = module.lines().find_map(|line| line.strip_prefix("go ")).unwrap();
    assert!(flat(Image::Agent).contains(&format!("FROM golang:{version}-bookworm")), "go.mod says {version}");
}

#[test]
fn the_toolbox_links_every_applet_but_busybox_itself() {
    let binaries = Binaries::from([(Binary::Busybox, PathBuf::from("/somewhere/busybox"))]);
    let applets = ["busybox", "sh", "["].map(str::to_owned);
    let entries = Image::Toolbox.entries(&binaries, &applets).unwrap();
    let named = |path: &str| entries.iter().filter(|entry| entry.path == Path::new(path)).collect::<Vec<_>>();
    assert_eq!(named("bin/sh")[0].node, Node::Symlink("/bin/busybox".into()));
    assert_eq!(named("bin/[").len(), 1);
    assert_eq!(named("bin/busybox").len(), 1);
    assert_eq!(named("tmp")[0].mode, 0o1777);
}

#[test]
fn a_program_that_was_not_built_is_named() {
    let error = Image::Local.entries(&Binaries::new(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "buildkite-local was not built");
}
