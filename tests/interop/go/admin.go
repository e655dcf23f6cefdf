package main

import (
	"context"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func registerAdmin(ops map[string]operation) {
	ops["go_create_topic"] = func(c command) (any, error) {
		return nil, withAdmin(c, func(a admin.Admin) error {
			return a.CreateTopic(context.Background(), admin.WithTopicCreate(c.text("topic", "")),
				admin.WithBrokerAddrCreate(c.text("broker_address", "")),
				admin.WithReadQueueNums(int(c.number("queues", 4))),
				admin.WithWriteQueueNums(int(c.number("queues", 4))))
		})
	}
	ops["go_delete_topic"] = func(c command) (any, error) {
		return nil, withAdmin(c, func(a admin.Admin) error {
			return a.DeleteTopic(context.Background(), admin.WithTopicDelete(c.text("topic", "")),
				admin.WithBrokerAddrDelete(c.text("broker_address", "")),
				admin.WithNameSrvAddr([]string{c.text("name_server", "")}))
		})
	}
	ops["go_topic_list"] = func(c command) (any, error) {
		var topics []string
		err := withAdmin(c, func(a admin.Admin) error {
			list, err := a.FetchAllTopicList(context.Background())
			if err == nil {
				topics = list.TopicList
			}
			return err
		})
		return topics, err
	}
	ops["go_groups"] = func(c command) (any, error) {
		groups := []string{}
		err := withAdmin(c, func(a admin.Admin) error {
			wrapper, err := a.GetAllSubscriptionGroup(context.Background(), c.text("broker_address", ""), 3e9)
			if err == nil {
				for name := range wrapper.SubscriptionGroupTable {
					groups = append(groups, name)
				}
			}
			return err
		})
		return groups, err
	}
}

func withAdmin(c command, do func(admin.Admin) error) error {
	made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(c.nameServer())))
	if err != nil {
		return err
	}
	return do(made)
}
