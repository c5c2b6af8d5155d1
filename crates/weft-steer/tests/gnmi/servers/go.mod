module weft/gnmi-servers

go 1.25.0

require (
	github.com/google/gnxi v0.0.0-20221016143401-2aeceb5a2901
	github.com/openconfig/gnmi v0.14.1
	github.com/openconfig/ygot v0.36.0
	google.golang.org/grpc v1.76.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/golang/glog v1.2.5 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/openconfig/goyang v1.6.3 // indirect
	github.com/openconfig/grpctunnel v0.1.0 // indirect
	golang.org/x/exp v0.0.0-20251009144603-d2f985daa21b // indirect
	golang.org/x/net v0.55.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
	golang.org/x/text v0.37.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250804133106-a7a43d27e69b // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)

tool (
	github.com/google/gnxi/gnmi_get
	github.com/openconfig/gnmi/testing/fake/gnmi/cmd/fake_server
)
