use super::request;
use crate::{family::Labels, text};

#[test]
fn each_kind_has_its_form() {
    let families = text::read(
        r#"# TYPE done counter
# HELP done Jobs done.
done{suite="a"} 3 1000
# TYPE heat gauge
heat 1.5
odd NaN
# TYPE seconds histogram
seconds_bucket{le="0.5"} 1
seconds_bucket{le="2"} 4
seconds_sum 3.5
seconds_count 6
# TYPE share summary
share{quantile="0.5"} 7
share_sum 8
share_count 1
"#,
    )
    .unwrap();
    let resource = Labels::from([("pipeline".to_owned(), "app".to_owned())]);
    insta::assert_yaml_snapshot!(request(&families, &resource, 5, 2_000_000_000));
}
