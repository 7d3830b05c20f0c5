use super::{rejected, request};
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
odd{sign="+"} +Inf
odd{sign="-"} -Inf
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
    let request = request(&families, &resource, 5, 2_000_000_000);
    assert!(request.left_out.is_empty(), "{:?}", request.left_out);
    insta::assert_yaml_snapshot!(request.body);
}

/// What OTLP has no way to say is named, and the rest is sent.
#[test]
fn what_is_incomplete_is_left_out_by_name() {
    let families = text::read(
        r#"# TYPE a histogram
a_bucket{le="1"} 2
a_bucket{le="+Inf"} 3
# TYPE b summary
b{quantile="0.5"} 7
# TYPE c histogram
c_bucket{le="1"} -2
c_count 2
# TYPE d histogram
d_count NaN
# TYPE e gauge
e 1
"#,
    )
    .unwrap();
    let request = request(&families, &Labels::new(), 5, 6);
    let expected = [
        "a cannot be sent by OTLP: there is no a_count",
        "b cannot be sent by OTLP: there is no b_count",
        "c_bucket is no number of observations: -2",
        "d_count is no number of observations: NaN",
    ];
    assert_eq!(request.left_out, expected);
    let metrics = &request.body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(metrics.as_array().unwrap().len(), 1, "{metrics}");
}

#[test]
fn answers_tell_how_many_values_were_refused() {
    let refused = |text: &str| rejected(text.as_bytes());
    assert_eq!(refused(""), None);
    assert_eq!(refused("{}"), None);
    assert_eq!(refused(r#"{"partialSuccess":{"rejectedDataPoints":"0","errorMessage":"hm"}}"#), None);
    let both = Some((3, "old".to_owned()));
    assert_eq!(refused(r#"{"partialSuccess":{"rejectedDataPoints":"3","errorMessage":"old"}}"#), both);
    assert_eq!(refused(r#"{"partialSuccess":{"rejectedDataPoints":3,"errorMessage":"old"}}"#), both);
}
