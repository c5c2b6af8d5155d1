// Command weft-gnmi-servers runs gNMI servers, each with the state of a file as its configuration: gnxi's server
// (github.com/google/gnxi/gnmi) with OpenConfig's models as ygot compiles them (exampleoc), which unlike gnxi's own have network
// instances. Nothing of Weft answers a request. It checks certificates and passwords as gnxi's gnmi_target does, with the same
// flags.
//
//	weft-gnmi-servers -ca ca.pem -cert server.pem -key server.key leaf-0.json leaf-1.json
//
// It prints a line with the file and the address for each server. With -sends PORT=BYTES,… ports count as many bytes sent in a
// second.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/gnxi/gnmi"
	"github.com/google/gnxi/utils/credentials"
	pb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/exampleoc"
	"github.com/openconfig/ygot/ygot"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var sends = flag.String("sends", "", "ports and the bytes that they send in a second, PORT=BYTES,…")

type server struct{ *gnmi.Server }

func (s *server) Get(ctx context.Context, request *pb.GetRequest) (*pb.GetResponse, error) {
	if reason, ok := credentials.AuthorizeUser(ctx); !ok {
		return nil, status.Error(codes.Unauthenticated, reason)
	}
	return s.Server.Get(ctx, request)
}

func (s *server) Set(ctx context.Context, request *pb.SetRequest) (*pb.SetResponse, error) {
	if reason, ok := credentials.AuthorizeUser(ctx); !ok {
		return nil, status.Error(codes.Unauthenticated, reason)
	}
	return s.Server.Set(ctx, request)
}

// count adds a tenth of a port's bytes in a second to its counter, ten times a second.
func count(engine *gnmi.Server, port string, bytes uint64) {
	add := func(config ygot.ValidatedGoStruct) error {
		if found := config.(*exampleoc.Device).GetInterface(port); found != nil {
			*found.Counters.OutOctets += bytes / 10
		}
		return nil
	}
	for range time.Tick(100 * time.Millisecond) {
		engine.InternalUpdate(add)
	}
}

func serve(file string) error {
	config, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	model := gnmi.NewModel(nil, reflect.TypeOf((*exampleoc.Device)(nil)), exampleoc.SchemaTree["Device"],
		exampleoc.Unmarshal, exampleoc.ΛEnum)
	engine, err := gnmi.NewServer(model, config, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	for _, send := range strings.Split(*sends, ",") {
		if port, text, found := strings.Cut(send, "="); found {
			bytes, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return err
			}
			go count(engine, port, bytes)
		}
	}
	endpoint := grpc.NewServer(credentials.ServerCredentials()...)
	pb.RegisterGNMIServer(endpoint, &server{engine})
	fmt.Println(file, listener.Addr())
	go func() { log.Fatal(endpoint.Serve(listener)) }()
	return nil
}

func main() {
	flag.Parse()
	for _, file := range flag.Args() {
		if err := serve(file); err != nil {
			log.Fatal(err)
		}
	}
	select {}
}
