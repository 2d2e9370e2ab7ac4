"""One Apache Kafka node with TLS, SASL, mutual TLS and ACLs, each on a listener of its own."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from leadline.contracts.acls import Acl
from tests.security.certificates import Authority
from tests.support.brokers import ApacheKafka, KafkaNode
from tests.support.ports import free_ports

__all__ = ["PASSWORDS", "SecureKafka"]

PASSWORDS = {
    "monitor": "m0nitor-secret",
    "agents": "agent-secret",
    "operators": "op-secret",
    "dashboard": "dash-secret",
    "admin": "adm1n-secret",
}
_MODULE = "org.apache.kafka.common.security"


class SecureKafka(ApacheKafka):
    """``bootstrap`` is the plain listener, whose unnamed user is the cluster's superuser; the others are for what is tested."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.authority = Authority(directory / "authority")
        self._sasl_port, self._tls_port = free_ports(2)
        certificate, key = self.authority.issue("broker", host="127.0.0.1")
        self._keystore = directory / "authority" / "broker.pem"
        self._keystore.write_bytes(key.read_bytes() + certificate.read_bytes())

    @property
    def sasl(self) -> str:
        """TLS and SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (unsigned tokens)."""
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def mutual(self) -> str:
        """TLS with certificates on both sides; the name in the client's is its user."""
        return f"127.0.0.1:{self._tls_port}"

    def properties(self, node: KafkaNode) -> dict[str, str]:
        given = super().properties(node)
        users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
        sasl = "listener.name.sasl_ssl"
        return {
            **given,
            "listeners": f"{given['listeners']},SASL_SSL://{self.sasl},SSL://{self.mutual}",
            "advertised.listeners": f"{given['advertised.listeners']},SASL_SSL://{self.sasl},SSL://{self.mutual}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            f"{sasl}.plain.sasl.jaas.config": f"{_MODULE}.plain.PlainLoginModule required {users};",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_MODULE}.scram.ScramLoginModule required;",
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def add_users(self) -> None:
        """SCRAM users for every role. The node must run."""
        admin = self._admin()  # Kept until the answers are here: its end would end them.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # A user's only one at a time.
            asked = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
                for user, password in PASSWORDS.items()
            ]
            for future in admin.alter_user_scram_credentials(asked).values():
                future.result(30)

    def allow(self, wanted: list[Acl]) -> None:
        """These permissions, each role being the user of its name. The node must run."""
        bindings = [
            AclBinding(
                getattr(ResourceType, one.resource.upper()),
                one.name,
                ResourcePatternType.LITERAL,
                f"User:{one.role}",
                "*",
                getattr(AclOperation, _OPERATIONS.get(one.operation, one.operation.upper())),
                AclPermissionType.ALLOW,
            )
            for one in wanted
        ]
        admin = self._admin()
        for future in admin.create_acls(bindings).values():
            future.result(30)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})


_OPERATIONS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}
